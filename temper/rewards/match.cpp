// Completions compared with a text, and searched for a pattern.
#include "temper/base/error.h"
#include "temper/rewards/answer.h"
#include "temper/rewards/reward.h"
#include "temper/text/regex.h"

namespace temper::rewards {
namespace {

class Exact : public SimpleReward {
 public:
  explicit Exact(std::string field) : field_(std::move(field)) {}
  std::vector<std::string> required_fields() const override { return {field_}; }
  double score(const Sample& sample) const override {
    const std::string truth = text_field(sample, field_);
    return trimmed(sample.completion) == trimmed(truth) ? 1 : 0;
  }

 private:
  std::string field_;
};

// A pattern that takes more steps on a completion than is sane has no verdict on it.
class Pattern : public Reward {
 public:
  explicit Pattern(const std::string& pattern) : regex_(pattern, "rewards: pattern") {}
  std::vector<Verdict> judge(std::span<const Sample> samples) override {
    std::vector<Verdict> verdicts;
    for (const Sample& sample : samples) {
      Regex::Match match;
      try {
        const bool found = regex_.find(sample.completion, 0, match);
        verdicts.push_back({Verdict::Kind::kValue, found ? 1.0 : 0.0, {}});
      } catch (const DataError& e) {
        verdicts.push_back({Verdict::Kind::kTimedOut, 0, e.what()});
      }
    }
    return verdicts;
  }

 private:
  Regex regex_;
};

std::unique_ptr<Reward> make_exact(const RewardSection& s) {
  return std::make_unique<Exact>(s.field);
}
std::unique_ptr<Reward> make_regex(const RewardSection& s) {
  check<ConfigError>(
      s.pattern.has_value(),
      "rewards: regex needs `pattern`, as in {name: regex, pattern: 'answer: \\d+'}");
  return std::make_unique<Pattern>(*s.pattern);
}

const Registered<MakeReward> kExactReward(
    &registry, {"exact", &make_exact,
                "1 where the completion is the row's `answer`, but for surrounding space"});
const Registered<MakeReward> kRegexReward(&registry,
                                          {"regex", &make_regex,
                                           "1 where `pattern` is found in the completion"});

}  // namespace
}  // namespace temper::rewards
