// How a fork differs from its run: tables of paired differences, and of single prompts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/cli/parts/run_files.h"
#include "temper/metrics/paired.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::cli {

// A row for each metric: the number of pairs (`pairs` is that column's title: "steps", "prompts"),
// both means, the mean difference b - a, and its 95 % intervals, paired and unpaired; an interval
// is empty where there is only one pair.
Report::Table difference_table(std::string title, const std::vector<PairedDifference>& differences,
                               const std::string& pairs, const std::string& name_a,
                               const std::string& name_b);

// For `b`, a fork of `a` after step `after`; the names are the runs'. The first table has the
// differences of reward and completion length over all prompts; the second, left out if no reward
// changed, the ten prompts whose reward changed most. Empty where neither run has rollout files
// after that step. Throws DataError for a rollout file that cannot be read.
std::vector<Report::Table> prompt_tables(const RunFiles& a, const std::string& name_a,
                                         const RunFiles& b, const std::string& name_b,
                                         int64_t after);

// The last user message of a prompt (token ids) on one line, its middle cut out beyond 160 bytes;
// the whole prompt, cut likewise, where `chat` is null or does not show where that message is. With
// a null tokenizer: "token ids" and the first 20.
std::string last_user_part(std::vector<int32_t> prompt, const Tokenizer* tokenizer,
                           const ChatTemplate* chat);

}  // namespace temper::cli
