// Answers of mathematics in \boxed{...}, as the MATH dataset has them (Hendrycks et al., arXiv
// 2103.03874).
#include <algorithm>
#include <cctype>

#include "temper/rewards/answer.h"
#include "temper/rewards/builtin.h"

namespace temper::rewards {
namespace {

std::string without_space(std::string text) {
  std::erase_if(text,
                [](char c) { return std::isspace(static_cast<unsigned char>(c)) || c == '$'; });
  while (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

// "0.5", "50\%" and "\frac{1}{2}" are one answer; what is no number must be written alike.
bool equal(const std::string& a, const std::string& b) {
  if (without_space(a) == without_space(b)) return true;
  const std::optional<double> x = evaluate(a), y = evaluate(b);
  return x && y && same_number(*x, *y);
}

class Math : public SimpleReward {
 public:
  explicit Math(std::string field) : field_(std::move(field)) {}
  std::vector<std::string> required_fields() const override { return {field_}; }
  double score(const Sample& sample) const override {
    const std::optional<std::string> found = last_boxed(sample.completion);
    if (!found) return 0;
    const std::string truth = text_field(sample, field_);
    return equal(*found, last_boxed(truth).value_or(truth)) ? 1 : 0;
  }

 private:
  std::string field_;
};

}  // namespace

std::unique_ptr<Reward> make_math(const RewardSection& s) {
  return std::make_unique<Math>(s.field);
}

}  // namespace temper::rewards
