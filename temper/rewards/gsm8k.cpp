// GSM8K's answers (Cobbe et al., arXiv 2110.14168): the final number after ####, and in completions
// wherever models put it.
#include "temper/base/error.h"
#include "temper/rewards/answer.h"
#include "temper/rewards/builtin.h"

namespace temper::rewards {
namespace {

// The last that the completion names as its answer: after ####, in \boxed{}, after "answer is" or
// "answer:", else its last number.
std::optional<double> final_number(std::string_view text) {
  const size_t marks = text.rfind("####");
  if (marks != std::string_view::npos) {
    const std::string_view rest = text.substr(marks + 4), line = rest.substr(0, rest.find('\n'));
    if (const auto value = evaluate(line)) return value;
    if (const auto value = last_number(line)) return value;
  }
  if (const auto boxed = last_boxed(text)) {
    if (const auto value = evaluate(*boxed)) return value;
  }
  return last_number(text);
}

class Gsm8k : public SimpleReward {
 public:
  explicit Gsm8k(std::string field) : field_(std::move(field)) {}
  double score(const Sample& sample) const override {
    const std::string truth = text_field(sample, field_);
    const std::optional<double> expected = final_number(truth),
                                found = final_number(sample.completion);
    check<DataError>(expected.has_value(), "reward gsm8k: the row's `", field_,
                     "` holds no number: ", truth.substr(0, 80));
    return found && same_number(*expected, *found) ? 1 : 0;
  }

 private:
  std::string field_;
};

}  // namespace

std::unique_ptr<Reward> make_gsm8k(const RewardSection& s) {
  return std::make_unique<Gsm8k>(s.field);
}

}  // namespace temper::rewards
