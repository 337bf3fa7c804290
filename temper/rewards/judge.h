// A language model as a reward: it is asked about each completion by chat completion at temperature
// 0, and a number in its answer is the value.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "temper/rewards/reward.h"
#include "temper/text/regex.h"

namespace temper::rewards {

// The text with {prompt}, {completion} and the row's fields, or paths of them, in place of their
// names; {{name}} stands for {name}, and other braces for themselves. What is filled in is not
// looked at again. A prompt of messages is the content of one, or a line a message. Throws
// DataError where the row lacks a field.
std::string filled(const std::string& text, const Sample& sample);
// The fields of rows that it names, but for `prompt` and `completion`.
std::vector<std::string> fields_of(const std::string& text);

class Judge : public Reward {
 public:
  // Throws ConfigError for what is wrong with the section's `judge`.
  explicit Judge(RewardSection section);

  // Equal questions are asked once, in this call and in earlier ones.
  std::vector<Verdict> judge(std::span<const Sample> samples) override;
  void tell_failures(Heard heard) override { heard_ = std::move(heard); }
  std::vector<std::string> required_fields() const override;

 protected:
  using Answer = std::variant<std::string, Verdict>;  // its text, or how asking failed
  using Take = std::function<void(size_t question, Answer answer)>;
  // Asks all of them, which differ. `take` is called once a question, in any order, on the caller's
  // thread.
  virtual void ask(const std::vector<std::string>& questions, const Take& take) = 0;
  const RewardSection& section() const { return section_; }

 private:
  Verdict verdict_of(const std::string& answer) const;
  void remember(const std::string& question, const Verdict& verdict);

  const RewardSection section_;
  const Regex pattern_;
  Heard heard_ = [](const std::string&, bool) {};
  std::map<std::string, Verdict> known_;
  std::list<std::map<std::string, Verdict>::iterator> oldest_;  // first
};

// One that a server with OpenAI's API answers: its first listed model. A request that fails, but
// for what the server says is wrong with it, is sent again, at most four times in all.
std::unique_ptr<Reward> make_server_judge(const RewardSection& section);

}  // namespace temper::rewards
