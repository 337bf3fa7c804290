#include "temper/generate/beam_search.h"

#include <algorithm>
#include <limits>

#include "temper/base/exact_math.h"
#include "temper/generate/likeliest.h"

namespace temper::generate {
namespace {

bool better(const Beam& a, const Beam& b) { return a.score > b.score; }

}  // namespace

BeamSearch::BeamSearch(const BeamOptions& options, int64_t max_new_tokens, int64_t end_tokens,
                       Ends ends)
    : options_(options),
      max_new_tokens_(max_new_tokens),
      end_tokens_(end_tokens),
      ends_(std::move(ends)),
      running_(1) {}

// The best of all beams, best first: so many that `beams` of them go on, whichever tokens end.
std::vector<Beam> BeamSearch::continuations(std::span<const float* const> scores,
                                            std::span<const float* const> logprobs,
                                            int64_t vocabulary) const {
  const int64_t count = std::max<int64_t>(2, 1 + end_tokens_) * options_.beams;
  struct Candidate {
    size_t beam;
    int32_t token;
    float score;
  };
  std::vector<Candidate> all;
  for (size_t b = 0; b < running_.size(); ++b)
    for (const int32_t token : likeliest_ids(scores[b], vocabulary, count))
      if (scores[b][token] > -std::numeric_limits<float>::infinity())
        all.push_back({b, token, scores[b][token] + running_[b].score});
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  all.resize(std::min(all.size(), static_cast<size_t>(count)));
  std::vector<Beam> out;
  for (const Candidate& c : all) {
    Beam beam = running_[c.beam];
    beam.tokens.push_back(c.token);
    beam.logprobs.push_back(logprobs[c.beam][c.token]);
    beam.score = c.score;
    beam.parent = c.beam;
    beam.stopped = ends_(beam);
    out.push_back(std::move(beam));
  }
  return out;
}

void BeamSearch::finish(Beam beam) {
  beam.score /=
      static_cast<float>(exact::pow(static_cast<double>(length_), options_.length_penalty));
  finished_.insert(std::upper_bound(finished_.begin(), finished_.end(), beam, better),
                   std::move(beam));
  if (finished_.size() > static_cast<size_t>(options_.beams)) finished_.pop_back();
}

void BeamSearch::advance(std::span<const float* const> scores,
                         std::span<const float* const> logprobs, int64_t vocabulary) {
  std::vector<Beam> all = continuations(scores, logprobs, vocabulary);
  ++length_;
  const size_t beams = static_cast<size_t>(options_.beams);
  const bool last = length_ >= max_new_tokens_;
  running_.clear();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool ends = all[i].stopped || last;
    // One that ends counts only among the best; the others are there to go on.
    if (ends && i < beams)
      finish(std::move(all[i]));
    else if (!ends && running_.size() < beams)
      running_.push_back(std::move(all[i]));
  }
  done_ = running_.empty();
  if (done_ || finished_.size() < beams) return;
  const double power = exact::pow(static_cast<double>(length_), options_.length_penalty);
  done_ = running_.front().score / static_cast<float>(power) <= finished_.back().score;
}

}  // namespace temper::generate
