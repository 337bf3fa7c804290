// Verdicts on answers beside those of the field's graders: tests/golden/make_answer_goldens.py says
// where each comes from.
#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/rewards/reward.h"
#include "temper/rewards/same_answer.h"

using namespace temper;
using namespace temper::rewards;

namespace {

Json golden() {
  const char* source = std::getenv("TEMPER_SOURCE_DIR");
  return read_json_file(str(source ? source : ".", "/tests/golden/answers.json"));
}

double reward(const std::string& name, const std::string& answer, const std::string& completion) {
  RewardSection section;
  section.name = name;
  Sample sample;
  sample.row = std::make_shared<const Json>(Json{{"answer", answer}});
  sample.completion = completion;
  return make_reward(section)->judge({&sample, 1})[0].value;
}

}  // namespace

TEST_CASE("answers of mathematics are judged as math_verify judges them, or for a reason") {
  const Json rows = golden().at("math");
  CHECK(rows.size() > 900);
  for (const Json& row : rows) {
    CAPTURE(row.dump().substr(0, 400));
    CHECK(same_answer(row.at("truth").get<std::string>(), row.at("answer").get<std::string>()) ==
          (row.at("expected") == 1));
    // What needs no reason is what one of the graders says.
    CHECK((row.at("expected") == row.at("math_verify") || row.contains("reason")));
  }
}

TEST_CASE("a list of candidates earns nothing") {
  for (const char* completion :
       {"\\boxed{x=3 \\text{ or } x=4}", "\\boxed{3, 4}", "\\boxed{3} or \\boxed{4, 5}",
        "\\boxed{1=2=4}", "\\boxed{3 \\text{ and } 4}", "\\boxed{\\{3,4\\}}"}) {
    CAPTURE(completion);
    CHECK(reward("math", "4", completion) == 0);
  }
  CHECK(reward("math", "\\boxed{3x}", "\\boxed{3y}") == 0);
  CHECK(reward("math", "\\boxed{1234}", "\\boxed{(1,234)}") == 0);
  CHECK(reward("math", "so \\boxed{3x}", "\\boxed{x \\cdot 3}") == 1);
}

TEST_CASE("completions of GSM8K are judged as one of the harness's filters does, or for a reason") {
  const Json rows = golden().at("gsm8k");
  CHECK(rows.size() > 100);
  for (const Json& row : rows) {
    CAPTURE(row.dump().substr(0, 400));
    CHECK(reward("gsm8k", row.at("truth"), row.at("completion")) == row.at("expected"));
  }
}

TEST_CASE("small numbers are compared by their size, and sums that cancel with 0") {
  CHECK_FALSE(same_answer("1.6 \\times 10^{-19}", "3.2 \\times 10^{-19}"));
  CHECK_FALSE(same_answer("0", "1.6 \\times 10^{-19}"));
  CHECK(same_answer("1.6 \\times 10^{-19}", "\\frac{16}{10^{20}}"));
  for (const char* vague :
       {"10^{20}-10^{20}+0.5", "10^{20.5}-10^{20.5}+0.5", "\\frac{\\sin \\pi}{10^{-30}}"})
    CHECK_FALSE_MESSAGE(same_answer("7", vague), vague);
  for (const char* zero : {"\\sqrt{2}^2-2", "\\sin \\pi", "0.1+0.2-0.3", "3(\\sqrt{2}^2-2)",
                           "\\frac{\\sqrt{3}\\sqrt{3}-3}{7}"})
    CHECK_MESSAGE(same_answer("0", zero), zero);
}

TEST_CASE("hostile answers are judged at once") {
  std::string sets = "1";
  for (int i = 0; i < 19; ++i) sets = "\\{" + sets + "," + sets.substr(0, 20) + "\\}";
  std::string fractions = "7";
  for (int i = 0; i < 48; ++i) fractions = "3\\frac{" + fractions + "}{x}";
  CHECK_FALSE(same_answer("3", fractions));
  CHECK_FALSE(same_answer("1", "\\lfloor 10^{400}-10^{400} \\rfloor"));
  CHECK_FALSE(same_answer("1", "\\lfloor 10^{400}-10^{399.9} \\rfloor"));
  CHECK(same_answer("1", "(10^{400}-10^{400})!"));
  CHECK_FALSE(same_answer("1", "(10^{400}-9^{400})!"));
  std::string factorials = "1";
  for (int i = 0; i < 190; ++i) factorials += "9999!";
  CHECK_FALSE(same_answer("3", factorials));
  // Of the smaller part nothing is left.
  CHECK_FALSE(same_answer("10^{400.5}+1", "10^{400.5}+2"));
  CHECK_FALSE(same_answer("x^{2004}+x", "x^{2004}+2x"));
  for (const std::string& one :
       {std::string(1000, '{'), std::string(1000, '\\'), std::string(1000, '('),
        std::string(333, '|'), sets, "\\{" + sets + "\\}", std::string(900, '-') + "1",
        std::string("\\binom{60}{30}!"), std::string("170!!"), std::string("9^9^9^9^9"),
        std::string("\\text{") + std::string(900, '{'), std::string(100000, 'x'),
        std::string("\\begin{pmatrix}") + std::string(900, '&') + "\\end{pmatrix}",
        std::string("\0\x01\x02^\xff", 5)}) {
    CAPTURE(one.substr(0, 60));
    CHECK(same_answer(one, one));
    CHECK_FALSE(same_answer("3", one));
    CHECK_FALSE(same_answer(one, "3"));
  }
}
