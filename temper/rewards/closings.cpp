#include "temper/rewards/closings.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/text/chat/dialogue.h"

namespace temper::rewards {

Closings::Closings(std::span<const RewardSection> sections, const Tokenizer* tokenizer,
                   std::vector<int32_t> ends)
    : tokenizer_(tokenizer),
      needed_(std::ranges::any_of(sections, [](const auto& s) { return s.model.has_value(); })),
      ends_(std::move(ends)) {}

std::vector<int32_t> Closings::whole(const ChatTemplate& chat) const {
  try {
    return closing_tokens(*tokenizer_, chat);
  } catch (const DataError& e) {
    check<DataError>(!needed_, "rewards: cannot tell what the chat template writes behind a turn, ",
                     "which a reward model reads: ", e.what());
    return {};
  }
}

std::vector<int32_t> Closings::after(std::span<const int32_t> completion,
                                     const ChatTemplate* chat) {
  const bool ended = !completion.empty() && std::ranges::count(ends_, completion.back()) > 0;
  if (!tokenizer_ || !chat || !ended) return {};
  const auto [at, added] = found_.try_emplace(chat);
  if (added) at->second = whole(*chat);
  return after_end_token(*tokenizer_, at->second, completion.back());
}

}  // namespace temper::rewards
