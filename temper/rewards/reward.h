// Rewards: scores of completions. A reward is one file, which ends with its
// `Registered<MakeReward>`; programs that link Temper add theirs with register_reward, and any
// program at all can be a reward by its command (command.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "temper/base/json.h"
#include "temper/base/registry.h"
#include "temper/image/image_span.h"
#include "temper/rewards/config.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::rewards {

// One completion to be judged.
struct Sample {
  std::shared_ptr<const Json> row;  // all fields of the prompt's row, by name
  std::string where;                // the row's "FILE:LINE"
  std::vector<int32_t> prompt_tokens, completion_tokens;
  ImageSpans images = {};  // of the prompt's tokens followed by the completion's
  std::string prompt;      // decoded; empty: not known. Only commands see it, of rows without one
  std::string completion;  // decoded, without special tokens
  bool has_text = true;    // false: the model has no tokenizer, and `completion` is empty
  bool truncated = false;  // the completion reached the length limit
  int64_t max_new_tokens = 0;
  // Tokens that the chat template writes after a completion that ended by itself: reward models
  // read them too, as in their training. They are neither sampled nor part of the completion.
  std::vector<int32_t> closing_tokens = {};
};

// A reward's verdict on one sample: a value, or why there is none.
struct Verdict {
  enum class Kind { kValue, kTimedOut, kCrashed, kMalformed };
  Kind kind = Kind::kValue;
  double value = 0;
  std::string detail;  // for a failure: what happened, as messages say it
  // Lines that a command wrote before without a request. They cost no sample and count as
  // malformed.
  int64_t unasked_lines = 0;
};

constexpr double kLargestReward = 1e30;
// Whether it is a finite number of at most 1e30, so that sums and squares are finite too.
bool is_reward(double value);
// kValue for such a number, else kMalformed.
Verdict valued(double value);

class Reward {
 public:
  virtual ~Reward() = default;
  // One verdict a sample, in order. Called by one thread at a time, though not always the same.
  // Throws DataError where a row lacks what the reward reads.
  virtual std::vector<Verdict> judge(std::span<const Sample> samples) = 0;
  // Calls `heard` with what failed as soon as it does, while others are still judged, on the thread
  // of judge(); `last`: there will be no verdict any more. Rewards that take no time need not.
  using Heard = std::function<void(const std::string& detail, bool last)>;
  virtual void tell_failures(Heard /*heard*/) {}
  // Fields that every row must have, so that rows can be checked before they are sampled.
  virtual std::vector<std::string> required_fields() const { return {}; }
  // False: token ids are enough, and the reward works for models without a tokenizer.
  virtual bool needs_text() const { return true; }
  // Throws ConfigError for a reward that reads token ids as another tokenizer's than the policy's
  // (null: it has none), or one of more than `vocabulary` ids.
  virtual void check_tokens(const Tokenizer* /*tokenizer*/, int64_t /*vocabulary*/) const {}
  // Asks a server that gives the verdicts once. Throws ConfigError where it gives no answer within
  // the reward's timeouts, or refuses.
  virtual void check_answers() {}
};

// A reward that looks at one completion at a time and cannot fail.
class SimpleReward : public Reward {
 public:
  std::vector<Verdict> judge(std::span<const Sample> samples) final;
  virtual double score(const Sample& sample) const = 0;
};

using MakeReward = std::unique_ptr<Reward> (*)(const RewardSection& options);
using RewardEntry = Registry<MakeReward>::Entry;
// The built-in ones and those that were registered; `temper list rewards` prints it.
Registry<MakeReward>& registry();
// Throws ConfigError for a name that is taken. Before any run begins.
void register_reward(RewardEntry entry);
// Makes a reward of its name or command. Throws ConfigError that names the nearest known name, or
// what is wrong with its options.
std::unique_ptr<Reward> make_reward(const RewardSection& section);

struct FailureCounts {
  int64_t timed_out = 0, crashed = 0, malformed = 0;
  int64_t all() const { return timed_out + crashed + malformed; }
};

struct RewardResult {
  double reward = 0;         // Σ weight * value
  std::vector<double> each;  // [rewards] unweighted value of each reward; 0 where there is none
  bool dropped = false;      // a reward failed and its on_failure is drop
  bool failed = false;       // it is dropped, or no reward that weighs anything gave a value
  // [rewards] why a judge's server gave no answer; empty: it did, or the reward has no server,
  // weighs nothing, or its config says what a failure is (RewardSection::ends_where_dead).
  std::vector<std::string> unanswered = {};
};

// The rewards of a run.
class RewardSet {
 public:
  // `make` is make_reward, or makes some otherwise. Throws ConfigError, also where a reward needs
  // text and there is none.
  using Make = std::function<std::unique_ptr<Reward>(const RewardSection& section)>;
  RewardSet(std::span<const RewardSection> sections, bool has_text, const Make& make = make_reward);

  // Throws DataError, beginning with `where`, for a row without a field that a reward requires.
  void check_row(const Json& row, const std::string& where) const;
  // Reward::check_tokens of each.
  void check_tokens(const Tokenizer* tokenizer, int64_t vocabulary) const {
    for (const auto& reward : rewards_) reward->check_tokens(tokenizer, vocabulary);
  }
  // Reward::check_answers of each, for the start of a run.
  void check_answers() {
    for (const auto& reward : rewards_) reward->check_answers();
  }
  // Throws RunError where a reward fails and its on_failure is stop.
  std::vector<RewardResult> judge(std::span<const Sample> samples);
  const std::vector<std::string>& names() const { return names_; }
  // From here on `heard` is called with the first failure of each reward, and with its end, as soon
  // as it happens, on the thread of judge().
  void tell_failures(const std::function<void(const std::string& failure)>& heard);
  // Between calls of judge: the failures so far, and a line about the first of them, or the first
  // since it was taken.
  const FailureCounts& failures() const { return failures_; }
  const std::string& first_failure() const { return first_failure_; }
  std::string take_first_failure() { return std::exchange(first_failure_, {}); }
  // The first reward for which a failure so far was worth more than some value that it gave: it
  // counted 0 under on_failure: zero, and other values, times its weight, were negative. Empty:
  // there is none.
  std::string rewarded_failures() const;

 private:
  void count(size_t reward, const Verdict& verdict);

  std::vector<RewardSection> sections_;
  std::vector<std::unique_ptr<Reward>> rewards_;
  std::vector<std::string> names_;
  std::vector<bool> counted_zero_, gave_negative_;  // [rewards] whether each one did so far
  FailureCounts failures_;
  std::string first_failure_;
};

// A program's output as a part of a message: its lines joined by " | ", without empty ones.
std::string one_line(std::string_view text);

// The row's field, or the value that a path (`meta.answer`) leads to, as text: a string as it is, a
// number as JSON writes it. Throws DataError naming the fields that there are.
std::string text_field(const Sample& sample, const std::string& field);

}  // namespace temper::rewards
