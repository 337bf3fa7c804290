// Beam search over one prompt's completions, as transformers 5 does it with early_stopping false:
// of all continuations of the beams the likeliest go on; those that end compete by
//   score = (sum of log-probabilities) / tokens^length_penalty      (Wu et al., 1609.08144, eq. 14,
// with a plain power), until the best beam that goes on, taken at its length, is no better than the
// worst of the best.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace temper::generate {

struct BeamOptions {
  int64_t beams = 1;          // 1: no beam search
  double length_penalty = 1;  // above 0 favours long completions
};

struct Beam {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // of the tokens, of the full distribution
  float score = 0;              // going on: the sum; ended: divided by its length's power
  bool stopped = false;         // ended by what ends completions, not by its length
  size_t parent = 0;            // the beam before that it goes on from
};

class BeamSearch {
 public:
  // Whether a completion ends with its last token.
  using Ends = std::function<bool(const Beam&)>;
  // end_tokens: how many tokens may end a completion.
  BeamSearch(const BeamOptions& options, int64_t max_new_tokens, int64_t end_tokens, Ends ends);

  // The beams that go on; at first one that is empty.
  const std::vector<Beam>& running() const { return running_; }
  bool done() const { return done_; }
  // The completions that ended, best first; at most as many as beams.
  const std::vector<Beam>& finished() const { return finished_; }

  // Goes on by a token. Rows of `vocabulary` numbers, one a running beam: what scores add up
  // (log-probabilities after the rules; -inf: never), and log-probabilities.
  void advance(std::span<const float* const> scores, std::span<const float* const> logprobs,
               int64_t vocabulary);

 private:
  std::vector<Beam> continuations(std::span<const float* const> scores,
                                  std::span<const float* const> logprobs, int64_t vocabulary) const;
  void finish(Beam beam);

  BeamOptions options_;
  int64_t max_new_tokens_, end_tokens_, length_ = 0;
  Ends ends_;
  std::vector<Beam> running_, finished_;
  bool done_ = false;
};

}  // namespace temper::generate
