// Answers of mathematics in \boxed{...}, as the MATH dataset has them (Hendrycks et al., arXiv
// 2103.03874).
#include "temper/rewards/answer.h"
#include "temper/rewards/reward.h"
#include "temper/rewards/same_answer.h"

namespace temper::rewards {
namespace {

class Math : public SimpleReward {
 public:
  explicit Math(std::string field) : field_(std::move(field)) {}
  std::vector<std::string> required_fields() const override { return {field_}; }
  double score(const Sample& sample) const override {
    const std::optional<std::string> found = last_boxed(sample.completion);
    if (!found) return 0;
    const std::string truth = text_field(sample, field_);
    return same_answer(last_boxed(truth).value_or(truth), *found) ? 1 : 0;
  }

 private:
  std::string field_;
};

std::unique_ptr<Reward> make_math(const RewardSection& s) {
  return std::make_unique<Math>(s.field);
}

const Registered<MakeReward> kMathReward(
    &registry, {"math", &make_math,
                "1 where the \\boxed answer equals the row's `answer`: expressions by their "
                "values, lists, sets, intervals, matrices, equations part by part",
                "Hendrycks et al. (MATH), arXiv 2103.03874"});

}  // namespace
}  // namespace temper::rewards
