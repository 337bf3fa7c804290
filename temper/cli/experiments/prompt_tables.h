// How a fork differs from its run: tables of paired differences, and of single prompts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/cli/parts/run_files.h"
#include "temper/metrics/paired.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::cli {

// A table whose numbers have all their digits, and one for the console, with as many as tell what
// is compared apart. A row of one cell is a remark.
struct PairedTable {
  Report::Table whole, brief;
  void add_to_both(const std::vector<std::string>& row) {
    whole.rows.push_back(row);
    brief.rows.push_back(row);
  }
};

// Numbers that are compared: six significant digits of the smallest difference that is not 0,
// NaN or infinite, and as many places for all.
class ComparedNumbers {
 public:
  explicit ComparedNumbers(const std::vector<double>& differences);
  std::string operator()(double value) const;

 private:
  int place_ = 0;       // of the last digit: a power of ten
  bool known_ = false;  // false: there is no such difference, and all digits are shown
};

// A row for each metric: the number of pairs (`pairs` is that column's title: "steps", "prompts"),
// both means, the mean difference b - a, and its 95 % intervals (PairedDifference): paired,
// unpaired, and, where the pairs are in the order of time, of autocorrelated pairs; an interval is
// empty where there is only one pair. Constant metrics are left out of the brief table and counted.
PairedTable difference_table(const std::string& title,
                             const std::vector<PairedDifference>& differences,
                             const std::string& pairs, const std::string& name_a,
                             const std::string& name_b, bool are_in_order = false);

// For `b`, a fork of `a` after step `after`; the names are the runs'. The first table has the
// differences of reward and completion length over all prompts; the second, left out if no reward
// changed, the ten prompts whose reward changed most. Empty where neither run has rollout files
// after that step. Adds to `problems` what PairedPrompts::problems has.
std::vector<PairedTable> prompt_tables(const RunFiles& a, const std::string& name_a,
                                       const RunFiles& b, const std::string& name_b, int64_t after,
                                       std::vector<std::string>& problems);

// The texts that a template writes around a user's message.
struct UserMarks {
  std::string before, behind;
};

// Names prompts.
class PromptNames {
 public:
  // Either may be null.
  PromptNames(std::shared_ptr<const Tokenizer> tokenizer,
              const std::shared_ptr<const ChatTemplate>& chat);
  // The last user message of a prompt (token ids) on one line, its middle cut out beyond 160 bytes;
  // the whole prompt, cut likewise, without a template, or where that does not show where the
  // message is. Without a tokenizer: "token ids" and the first 20. Of no tokens: "(not known)".
  std::string operator()(std::vector<int32_t> prompt) const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<UserMarks> marks_;
};

}  // namespace temper::cli
