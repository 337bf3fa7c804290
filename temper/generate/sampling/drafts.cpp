#include "temper/generate/sampling/drafts.h"

#include <algorithm>
#include <cmath>

#include "temper/base/random.h"

namespace temper::generate {
namespace {

constexpr int64_t kLongestMatch = 8;  // longer ones count as this
constexpr int kMostPlaces = 32;       // of a pair of tokens that are looked at, the last ones

uint64_t pair_of(int32_t first, int32_t second) {
  return uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
}

}  // namespace

DraftEvidence::DraftEvidence(int64_t matched, Agreement agreement) {
  const int64_t length = matched >= kLongestMatch ? 4 : matched >= 5 ? 3 : matched - 2;
  number_ = static_cast<size_t>(3 * length) + static_cast<size_t>(agreement);
}

double DraftEvidence::prior() const {
  constexpr double kOfLength[] = {0.3, 0.4, 0.5, 0.65, 0.8};
  return kOfLength[number_ / 3];
}

DraftTexts::DraftTexts(std::span<const int32_t> prompt, const SamplingOptions& sampling,
                       int64_t index, int64_t position)
    : greedy_(sampling.temperature == 0),
      seed_(sampling.seed),
      index_(static_cast<uint64_t>(index)),
      position_(position) {
  texts_.push_back({{}, kPrompt});
  texts_[0].tokens.reserve(prompt.size());
  for (const int32_t token : prompt) {
    texts_[0].tokens.push_back(token);
    add_place(0);
  }
}

void DraftTexts::append(int64_t sample, int32_t token) {
  const auto [it, is_new] =
      text_of_sample_.try_emplace(sample, static_cast<int32_t>(texts_.size()));
  if (is_new) texts_.push_back({{}, sample});
  texts_[static_cast<size_t>(it->second)].tokens.push_back(token);
  add_place(it->second);
}

int32_t DraftTexts::token(int32_t number, int64_t at) const {
  if (at >= 0) return text(number).tokens[static_cast<size_t>(at)];
  const std::vector<int32_t>& prompt = texts_[0].tokens;
  return prompt[prompt.size() - static_cast<size_t>(-at)];
}

// Makes the last token of a text known, with the one before it.
void DraftTexts::add_place(int32_t number) {
  const int64_t at = static_cast<int64_t>(text(number).tokens.size()) - 1;
  if (number == 0 && at == 0) return;
  const uint64_t pair = pair_of(token(number, at - 1), token(number, at));
  const auto [it, is_new] = last_place_.try_emplace(pair, -1);
  places_.push_back({number, static_cast<int32_t>(at), it->second});
  it->second = static_cast<int32_t>(places_.size()) - 1;
}

// How many tokens up to these two places are the same, at most kLongestMatch.
int64_t DraftTexts::matched(int32_t a, int64_t a_at, int32_t b, int64_t b_at) const {
  const int64_t before = static_cast<int64_t>(texts_[0].tokens.size());
  const int64_t most =
      std::min({kLongestMatch, a_at + 1 + (a == 0 ? 0 : before), b_at + 1 + (b == 0 ? 0 : before)});
  int64_t n = 0;
  while (n < most && token(a, a_at - n) == token(b, b_at - n)) ++n;
  return n;
}

// The places at which the most of the text's last tokens are found, and something follows.
std::vector<DraftTexts::Candidate> DraftTexts::find(int32_t number) const {
  std::vector<Candidate> found;
  const int64_t last = static_cast<int64_t>(text(number).tokens.size()) - 1;
  const auto it = last_place_.find(pair_of(token(number, last - 1), token(number, last)));
  if (it == last_place_.end()) return found;
  int64_t longest = 0;
  int seen = 0;
  for (int32_t p = it->second; p >= 0 && seen < kMostPlaces; ++seen) {
    const Occurrence& place = places_[static_cast<size_t>(p)];
    p = place.before;
    if (place.at + 1 >= static_cast<int32_t>(text(place.text).tokens.size())) continue;
    const int64_t n = matched(number, last, place.text, place.at);
    longest = std::max(longest, n);
    found.push_back({place.text, place.at + 1, n});
  }
  std::erase_if(found, [longest](const Candidate& c) { return c.matched < longest; });
  return found;
}

double DraftTexts::random_number(int64_t sample, int64_t position) const {
  return RandomStream(seed_, RandomPurpose::kSampling, index_, static_cast<uint64_t>(sample))
      .uniform_double(static_cast<uint64_t>(position_ + position));
}

// Where the context is much the same, so are the shares of [0, 1) that lead to each token: of
// several places, the one whose random number was nearest is followed.
DraftToken DraftTexts::next_token(const std::vector<Candidate>& candidates, int64_t sample,
                                  int64_t position) const {
  using Agreement = DraftEvidence::Agreement;
  const auto token_of = [this](const Candidate& c) { return token(c.text, c.next); };
  const Candidate* best = &candidates.front();  // the last one that was sampled
  if (candidates.size() == 1) return {token_of(*best), {best->matched, Agreement::kOne}};
  const bool agree = std::all_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
    return token_of(c) == token_of(*best);
  });
  if (!agree && !greedy_) {
    const double mine = random_number(sample, position);
    double nearest = 2;
    for (const Candidate& c : candidates) {
      if (c.text == 0) continue;
      const double distance = std::abs(random_number(text(c.text).sample, c.next) - mine);
      if (distance < nearest) nearest = distance, best = &c;
    }
  }
  return {token_of(*best), {best->matched, agree ? Agreement::kAgree : Agreement::kDiffer}};
}

std::vector<DraftToken> DraftTexts::draft(
    int64_t sample, int64_t most, const std::function<bool(const DraftToken&)>& goes_on) const {
  std::vector<DraftToken> out;
  const auto mine = text_of_sample_.find(sample);
  if (mine == text_of_sample_.end() || most < 1) return out;
  int64_t position = static_cast<int64_t>(text(mine->second).tokens.size());
  for (std::vector<Candidate> candidates = find(mine->second); !candidates.empty(); ++position) {
    out.push_back(next_token(candidates, sample, position));
    if (static_cast<int64_t>(out.size()) >= std::min(most, kMostTokens) || !goes_on(out.back()))
      break;
    std::erase_if(candidates, [&](const Candidate& c) {
      return token(c.text, c.next) != out.back().token ||
             c.next + 1 >= static_cast<int32_t>(text(c.text).tokens.size());
    });
    for (Candidate& c : candidates) ++c.next, c.matched = std::min(c.matched + 1, kLongestMatch);
  }
  return out;
}

}  // namespace temper::generate
