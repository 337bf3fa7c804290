#include "temper/rl/episodes/growing_completion.h"

#include <algorithm>

namespace temper::rl {

void GrowingCompletion::add_turn(const generate::Completion& turn, bool trains) {
  for (size_t t = 0; t < turn.tokens.size(); ++t) {
    place_.push_back(length());
    completion_.tokens.push_back(turn.tokens[t]);
    completion_.sampled.push_back(trains);
    completion_.kept.push_back(turn.kept.empty() || !trains ? std::vector<int32_t>()
                                                            : turn.kept[t]);
    completion_.logprobs.push_back(trains ? turn.logprobs[t] : 0);
  }
}

void GrowingCompletion::add_answer(const Dialogue::Continuation& next, const ImageSpans& images) {
  append_spans(completion_.images, images, length());
  const size_t whole = base_ + place_.size();
  if (next.kept < whole) {
    const int64_t from_prompt = static_cast<int64_t>(next.kept) - static_cast<int64_t>(prompt_);
    const int64_t after = next.kept > base_ ? place_[next.kept - base_ - 1] + 1 : from_prompt;
    completion_.branches.push_back({length(), after});
    place_.resize(next.kept > base_ ? next.kept - base_ : 0);
    base_ = std::min(base_, next.kept);
  }
  for (const int32_t token : next.tokens) {
    place_.push_back(length());
    completion_.tokens.push_back(token);
    completion_.sampled.push_back(false);
    completion_.kept.emplace_back();
    completion_.logprobs.push_back(0);
  }
}

}  // namespace temper::rl
