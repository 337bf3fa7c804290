// GSM8K's answers (Cobbe et al., arXiv 2110.14168): the final number after ####, and in completions
// wherever models put it.

#include "temper/base/ascii.h"
#include "temper/base/error.h"
#include "temper/rewards/answer.h"
#include "temper/rewards/reward.h"

namespace temper::rewards {
namespace {

// The text from the last of these words to the end of its line; none: the text lacks them.
std::optional<std::string_view> after_last(std::string_view text, std::string_view lowercase) {
  const std::string low = ascii_lower(text);
  const size_t at = low.rfind(lowercase);
  if (at == std::string::npos) return {};
  const std::string_view rest = text.substr(at + lowercase.size());
  return rest.substr(0, rest.find('\n'));
}

std::optional<double> value_of(std::string_view text) {
  const auto value = evaluate(text);
  return value ? value : first_number(text);
}

// What "answer is" says up to the end of its sentence: the right side where an equation begins it
// ("12 + 6 = 18"), else the first number ("18, for 3 days", "18, as 3 x 6 = 18").
std::optional<double> value_of_sentence(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && text[end] != ';' &&
         !(text[end] == '.' && (end + 1 == text.size() || text[end + 1] == ' ')))
    ++end;
  const std::string_view sentence = text.substr(0, end);
  const size_t equals = sentence.rfind('=');
  constexpr std::string_view kOfEquations = "0123456789+-*/^().,$= xyn\u00d7\u00f7";
  if (equals != std::string_view::npos &&
      sentence.substr(0, equals).find_first_not_of(kOfEquations) == std::string_view::npos)
    if (const auto value = first_number(sentence.substr(equals + 1))) return value;
  return first_number(text);
}

// The last number that the completion names as its answer: after ####, in \boxed{}, after "answer
// is" or "answer:", else its last number. A percent sign counts as a unit ("75%" is 75), and "18!"
// is not a factorial.
std::optional<double> final_number(std::string_view completion) {
  std::string text(completion);
  std::erase_if(text, [](char c) { return c == '%' || c == '!'; });
  if (const auto line = after_last(text, "####"))
    if (const auto value = value_of(*line)) return value;
  if (const auto boxed = last_boxed(text))
    if (const auto value = value_of(*boxed)) return value;
  for (const std::string_view words : {"answer is", "answer:"})
    if (const auto line = after_last(text, words))
      if (const auto value = value_of_sentence(*line)) return value;
  return last_number(text);
}

class Gsm8k : public SimpleReward {
 public:
  explicit Gsm8k(std::string field) : field_(std::move(field)) {}
  std::vector<std::string> required_fields() const override { return {field_}; }
  double score(const Sample& sample) const override {
    const std::string truth = text_field(sample, field_);
    const std::optional<double> expected = final_number(truth),
                                found = final_number(sample.completion);
    check<DataError>(expected.has_value(), sample.where, ": reward gsm8k: the row's `", field_,
                     "` holds no number: ", truth.substr(0, 80));
    return found && same_number(*expected, *found) ? 1 : 0;
  }

 private:
  std::string field_;
};

std::unique_ptr<Reward> make_gsm8k(const RewardSection& s) {
  return std::make_unique<Gsm8k>(s.field);
}

const Registered<MakeReward> kGsm8kReward(
    &registry,
    {"gsm8k", &make_gsm8k, "1 where the completion's final number is that of the row's `answer`",
     "Cobbe et al., arXiv 2110.14168"});

}  // namespace
}  // namespace temper::rewards
