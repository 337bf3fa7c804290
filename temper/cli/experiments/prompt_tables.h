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

// Rows: number of pairs (named `pairs`), means, mean difference, and its intervals.
Report::Table difference_table(std::string title, const std::vector<PairedDifference>& differences,
                               const std::string& pairs, const std::string& name_a,
                               const std::string& name_b);

// `b` is a fork of `a` after this step; the names are the runs'. First the differences of reward
// and length over all prompts, then the prompts that changed most. Empty where the runs have no
// rollout files. Throws DataError.
std::vector<Report::Table> prompt_tables(const RunFiles& a, const std::string& name_a,
                                         const RunFiles& b, const std::string& name_b,
                                         int64_t after);

// The last message of a user in a prompt, or all of it where the template does not show which that
// is (it may be null), cut in its middle, on a line. Without a tokenizer the first ids.
std::string last_user_part(std::vector<int32_t> prompt, const Tokenizer* tokenizer,
                           const ChatTemplate* chat);

}  // namespace temper::cli
