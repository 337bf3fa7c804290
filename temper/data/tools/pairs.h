// Preference pairs that are made of other rows: of right answers, and of rollouts with rewards.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "temper/base/json.h"

namespace temper::data {

// {"prompt", "chosen", "rejected"} of a row {"prompt", "completion"} of text: `rejected` is the
// completion with its last number changed, wherever it stands in it, so that a solution agrees with
// its wrong answer. One digit differs; which, the seed and `index` decide. None: the completion has
// no number. Throws DataError that begins with `where`.
std::optional<Json> pair_with_wrong_number(const Json& row, uint64_t seed, uint64_t index,
                                           const std::string& where);

// {"prompt_ids", "chosen_ids", "rejected_ids", "reward_difference"} of a group's rows in a rollouts
// file, one for each prompt that they have (an agent's requests have several): the completion of
// the highest reward after it and that of the lowest, the first of equals, and the difference of
// their rewards. In conversations both sides end as the chat template ends a turn
// (`closing_tokens`), like preference rows of messages. None of a prompt after which all rewards,
// or both completions, are equal.
std::vector<Json> best_against_worst(const std::vector<Json>& group, const std::string& where);

}  // namespace temper::data
