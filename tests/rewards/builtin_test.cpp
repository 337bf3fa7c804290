#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/rewards/answer.h"
#include "temper/rewards/reward.h"

using namespace temper;
using namespace temper::rewards;

namespace {

double judge(const std::string& name, const std::string& answer, const std::string& completion,
             const std::string& pattern = "") {
  RewardSection section;
  section.name = name;
  if (!pattern.empty()) section.pattern = pattern;
  Sample sample;
  sample.row = std::make_shared<const Json>(Json{{"answer", answer}});
  sample.completion = completion;
  sample.completion_tokens.resize(25);
  sample.max_new_tokens = 100;
  return make_reward(section)->judge({&sample, 1})[0].value;
}

}  // namespace

TEST_CASE("gsm8k finds the final number however it is written") {
  const std::string truth = "She has 1,200 - 2 = <<1200-2=1198>>1198 left.\n#### 1,198";
  for (const char* right :
       {"#### 1198", "so it is 1,198.", "The answer is $1198.", "\\boxed{1,198}", "**1198**",
        "1198.00", "= 1198 apples", "5 and then\n#### 1198 apples", "answer: 1198!",
        "$1,198.00 in total"}) {
    CAPTURE(right);
    CHECK(judge("gsm8k", truth, right) == 1);
  }
  for (const char* wrong :
       {"", "none", "1198 or 1199", "#### 1199", "-1198", "11980", "1.198", "####"}) {
    CAPTURE(wrong);
    CHECK(judge("gsm8k", truth, wrong) == 0);
  }
  CHECK(judge("gsm8k", "#### -5", "it fell by 5, to -5") == 1);
  for (const char* right : {"#### 75%", "\\boxed{75\\%}", "it is 75%.", "#### 75 for 3 days",
                            "The answer is 75. I checked it 2 times.", "Answer: $75, not 80",
                            "The answer is 70 + 5 = 75.", "The answer is 75. Check: 2 + 3 = 5",
                            "Answer: x = 75; not 80 = 80", "The answer is 75 because 3 = 12/4",
                            "The answer is 75 km/h (= 1.25 km/min)"}) {
    CAPTURE(right);
    CHECK(judge("gsm8k", "#### 75", right) == 1);
  }
  CHECK(judge("gsm8k", "#### 5", "10-5") == 1);  // a minus between two numbers is no sign
  CHECK_THROWS_AS(judge("gsm8k", "no number", "1"), DataError);
}

TEST_CASE("math compares boxed answers as numbers or as they are written") {
  for (const char* right : {"\\boxed{0.5}", "x \\boxed{\\frac{1}{2}}", "\\boxed{\\dfrac12}",
                            "\\boxed{50\\%}", "\\boxed{1/2}", "\\boxed{2^{-1}}",
                            "\\boxed{3} no: \\boxed{.5}", "\\boxed{x = \\frac{2}{4}}",
                            "\\boxed{\\sqrt{1/4}}", "\\boxed{(1+2)/6}", "$\\boxed{0.5}$."}) {
    CAPTURE(right);
    CHECK(judge("math", "so \\boxed{\\frac{1}{2}}", right) == 1);
    CHECK(judge("math", "1/2", right) == 1);
  }
  for (const char* wrong :
       {"0.5", "\\boxed{0.51}", "\\boxed{}", "\\boxed{1/0}", "\\boxed{0.5", "\\boxed{half}"}) {
    CAPTURE(wrong);
    CHECK(judge("math", "\\frac{1}{2}", wrong) == 0);
  }
  CHECK(judge("math", "(-\\infty, 3]", "\\boxed{(-\\infty,3]}") == 1);
  CHECK(judge("math", "x^2+1", "\\boxed{x^2 + 1}") == 1);
  CHECK(judge("math", "2\\sqrt{3}", "\\boxed{2 \\cdot \\sqrt3}") == 1);
  CHECK(judge("math", "12\\pi", "\\boxed{12 π}") == 1);
  CHECK(judge("math", "10,000", "\\boxed{10000 \\text{ dollars}}") == 1);
}

TEST_CASE("expressions are bounded") {
  CHECK(evaluate("2^3*(4-1)/6") == 4);
  CHECK(evaluate("-3^2") == -9);
  CHECK(evaluate("(-3)^2") == 9);
  CHECK(!evaluate(std::string(500, '(') + "1" + std::string(500, ')')));
  CHECK(!evaluate(std::string(900, '-') + "1"));
  CHECK(!evaluate(std::string(100000, '9')));
  CHECK(!evaluate("9^9^9^9"));
  CHECK(!evaluate("1,2"));
  CHECK(!evaluate("__import__('os')"));
  CHECK(evaluate("1e5") == 100000);
  CHECK(!evaluate("1e999"));
}

TEST_CASE("texts, patterns, formats, lengths, repetitions and JSON") {
  CHECK(judge("exact", "Paris", " Paris\n") == 1);
  CHECK(judge("exact", "Paris", "paris") == 0);
  CHECK(judge("regex", "", "the answer: 12", "answer: \\d+") == 1);
  CHECK(judge("regex", "", "the answer: none", "answer: \\d+") == 0);
  CHECK_THROWS_AS(judge("regex", "", "x"), ConfigError);
  CHECK(judge("format", "", "<think>a\nb</think>\n<answer>4</answer>\n") == 1);
  for (const char* wrong :
       {"<answer>4</answer>", "<think>a</think>4", "x<think>a</think><answer>4</answer>",
        "<think>a</think> so <answer>4</answer>", "<answer>4</answer><think>a</think>",
        "<think>a</think><answer>4</answer><answer>5</answer>"}) {
    CAPTURE(wrong);
    CHECK(judge("format", "", wrong) == 0);
  }
  CHECK(judge("length", "", "") == doctest::Approx(-0.25));
  CHECK(judge("repetition", "", "a b c d e") == 0);
  CHECK(judge("repetition", "", "a b c a b c A b c") == doctest::Approx(3.0 / 7 - 1));
  CHECK(judge("json", "", "{\"a\": [1, 2]}") == 1);
  CHECK(judge("json", "", "```json\n{\"a\": 1}\n```") == 1);
  CHECK(judge("json", "", "{\"a\": 1} and more") == 0);
}

TEST_CASE("weights add up, unknown names and fields are named") {
  std::vector<RewardSection> sections(2);
  sections[0].name = "gsm8k";
  sections[0].weight = 2;
  sections[1].name = "length";
  sections[1].weight = 0.5;
  RewardSet set(sections, true);
  Sample sample;
  sample.row = std::make_shared<const Json>(Json{{"answer", "#### 4"}});
  sample.completion = "4";
  sample.completion_tokens.resize(10);
  sample.max_new_tokens = 10;
  const RewardResult judged = set.judge({&sample, 1})[0];
  CHECK(judged.reward == doctest::Approx(1.5));
  CHECK(judged.each == std::vector<double>{1, -1});
  sections[0].name = "gsm8kk";
  CHECK_THROWS_WITH_AS(RewardSet(sections, true), doctest::Contains("did you mean `gsm8k`"),
                       ConfigError);
  sections[0].name = "my/reward.py";
  CHECK_THROWS_WITH_AS(RewardSet(sections, true),
                       doctest::Contains("write rewards=[{command: [python3, my/reward.py]}]"),
                       ConfigError);
  sections[0].name = "gsm8k";
  CHECK_THROWS_WITH_AS(RewardSet(sections, false), doctest::Contains("no tokenizer"), ConfigError);
  sample.row = std::make_shared<const Json>(Json{{"solution", "4"}});
  CHECK_THROWS_WITH_AS(set.judge({&sample, 1}), doctest::Contains("solution"), DataError);
}

TEST_CASE("a built-in reward stands twice in one list under two names") {
  std::vector<RewardSection> sections(3);
  sections[0].name = "yes";
  sections[0].reward = "regex";
  sections[0].pattern = "yes";
  sections[1].name = "sure";
  sections[1].reward = "regex";
  sections[1].pattern = "sure";
  sections[1].weight = 4;
  sections[2].reward = "json";
  RewardSet set(sections, true);
  CHECK(set.names() == std::vector<std::string>{"yes", "sure", "json"});
  Sample sample;
  sample.row = std::make_shared<const Json>(Json::object());
  sample.completion = "sure";
  CHECK(set.judge({&sample, 1})[0].each == std::vector<double>{0, 1, 0});
  CHECK(set.judge({&sample, 1})[0].reward == 4);
  sections[0].reward = "jsn";
  CHECK_THROWS_WITH_AS(RewardSet(sections, true), doctest::Contains("did you mean `json`"),
                       ConfigError);
}

TEST_CASE("entries that contradict each other are refused") {
  const auto problem = [](std::vector<RewardSection> sections) { return find_problem(sections); };
  RewardSection unnamed, regex, alias, command;
  regex.name = "regex";
  alias.reward = "regex";
  command.command = {"/bin/sh"};
  CHECK(problem({regex, command}) == "");
  CHECK(problem({regex, unnamed}) == "reward 2 has neither a name, a command, a model nor a judge");
  CHECK(problem({regex, alias}) ==
        "two rewards are called `regex`; give one another name, as in {name: another, reward: "
        "regex}");
  alias.name = "a";
  CHECK(problem({regex, alias}) == "");
  CHECK(problem({command, command}).starts_with("two rewards are called `sh`"));
  command.reward = "regex";
  CHECK(problem({command}) ==
        "`sh` has a command and names the built-in reward regex; give one of them");
  CHECK_THROWS_AS(RewardSet({&command, 1}, true), ConfigError);
}

TEST_CASE("rows can be checked before anything is sampled") {
  std::vector<RewardSection> sections(4);
  const char* names[] = {"gsm8k", "math", "exact", "length"};
  for (size_t i = 0; i < 4; ++i) sections[i].name = names[i];
  sections[1].field = "solution";
  const RewardSet set(sections, true);
  set.check_row(Json{{"answer", "1"}, {"solution", "2"}}, "a.jsonl:1");
  CHECK_THROWS_WITH_AS(set.check_row(Json{{"answer", "1"}, {"x", 2}}, "a.jsonl:2"),
                       "a.jsonl:2: the reward math reads the field `solution`, and the row has "
                       "[answer, x]; data.columns (--columns) renames fields",
                       DataError);
  CHECK_THROWS_AS(set.check_row(Json{{"solution", "1"}}, "a.jsonl:3"), DataError);
}

TEST_CASE("a reward reads a field of an object in the row by its path") {
  RewardSection section;
  section.name = "exact";
  section.field = "reward_model.ground_truth";
  RewardSet set(std::vector{section}, true);
  const Json row{{"reward_model", {{"style", "rule"}, {"ground_truth", "Paris"}}}};
  set.check_row(row, "a.jsonl:1");
  CHECK_THROWS_WITH_AS(set.check_row(Json{{"reward_model", "Paris"}}, "a.jsonl:2"),
                       doctest::Contains("`reward_model.ground_truth`"), DataError);
  Sample sample;
  sample.row = std::make_shared<const Json>(row);
  sample.completion = "Paris";
  sample.has_text = true;
  CHECK(set.judge(std::vector{sample})[0].reward == 1);
}

namespace {

// Rewards of a program that links this library may compute anything.
struct Fixed : Reward {
  explicit Fixed(double value) : value(value) {}
  std::vector<Verdict> judge(std::span<const Sample> samples) override {
    return std::vector<Verdict>(samples.size(), {Verdict::Kind::kValue, value, {}});
  }
  double value;
};
std::unique_ptr<Reward> make_nan(const RewardSection&) { return std::make_unique<Fixed>(NAN); }
std::unique_ptr<Reward> make_huge(const RewardSection&) { return std::make_unique<Fixed>(-1e308); }

}  // namespace

TEST_CASE("no reward is counted that is no number or beyond 1e30") {
  register_reward({"nan", make_nan, "never a number"});
  register_reward({"huge", make_huge, "too large"});
  CHECK_THROWS_WITH_AS(register_reward({"huge", make_huge, ""}), "reward `huge` exists already",
                       ConfigError);
  std::vector<RewardSection> sections(2);
  sections[0].name = "nan";
  sections[1].name = "huge";
  RewardSet set(sections, true);
  Sample sample;
  sample.row = std::make_shared<const Json>(Json::object());
  CHECK(set.judge({&sample, 1})[0].reward == 0);
  CHECK(set.failures().malformed == 2);
  CHECK(set.first_failure() ==
        "nan: found the reward nan, expected a finite number of at most 1e+30");
  sections[1].on_failure = RewardSection::OnFailure::kStop;
  RewardSet stopping(sections, true);
  CHECK_THROWS_WITH_AS(stopping.judge({&sample, 1}), doctest::Contains("found the reward -1e+308"),
                       RunError);
}

TEST_CASE("lines that answer nothing count as malformed and cost no sample") {
  RewardSection section;
  section.command = {"sh", "-c", "while read -r l; do echo 1; echo 2; done"};
  section.workers = 1;
  RewardSet set({&section, 1}, true);
  std::vector<Sample> samples(3);
  for (Sample& s : samples) s.row = std::make_shared<const Json>(Json::object());
  for (const RewardResult& judged : set.judge(samples)) CHECK(judged.reward == 1);
  CHECK(set.failures().malformed == 2);
  CHECK(set.first_failure().find("which answers nothing") != std::string::npos);
}

TEST_CASE("what a program's standard error says is one line of a message") {
  RewardSection section;
  section.command = {"sh", "-c", "printf 'a\\n\\n  b \\n' >&2; exit 7"};
  Sample sample;
  sample.row = std::make_shared<const Json>(Json::object());
  RewardSet set({&section, 1}, true);
  set.judge({&sample, 1});
  CHECK(set.first_failure().ends_with("status 7:   b; its standard error before that: | a"));
  CHECK(set.take_first_failure().ends_with("before that: | a"));
  CHECK(set.first_failure().empty());
  section.on_failure = RewardSection::OnFailure::kStop;
  RewardSet stopping({&section, 1}, true);
  CHECK_THROWS_WITH_AS(stopping.judge({&sample, 1}),
                       doctest::Contains("before that: | a (its on_failure is stop)"), RunError);
}

TEST_CASE("a command's metrics have the name of its program, or of the script that it runs") {
  const auto label = [](const std::vector<std::string>& command) {
    RewardSection section;
    section.command = command;
    return section.label();
  };
  CHECK(label({"./judge"}) == "judge");
  CHECK(label({"python3", "rewards/style.py", "--strict"}) == "style");
  CHECK(label({"/usr/bin/python3.12", "-u", "style.v2.py"}) == "style.v2");
  CHECK(label({"python", "-m", "mine.style"}) == "style");
  CHECK(label({"bash", "even.sh"}) == "even");
  CHECK(label({"sh", "-c", "echo 1"}) == "sh");
  CHECK(label({"python3", "-X", "dev", "a.py"}) == "python3");
  CHECK(label({"cat", "file.txt"}) == "cat");
  CHECK(label({"python3"}) == "python3");
}

TEST_CASE("a completion has failed where no reward that weighs anything has a value") {
  std::vector<RewardSection> sections(2);
  sections[0].command = {"false"};
  sections[1].name = "length";
  Sample sample;
  sample.row = std::make_shared<const Json>(Json::object());
  const auto failed = [&] { return RewardSet(sections, true).judge({&sample, 1})[0].failed; };
  CHECK_FALSE(failed());
  sections[1].weight = 0;
  CHECK(failed());
  sections[0].weight = 0;
  CHECK_FALSE(failed());
  sections[1].weight = 1;
  CHECK_FALSE(failed());
  sections[0].on_failure = RewardSection::OnFailure::kDrop;
  CHECK(failed());
  CHECK_FALSE(RewardSet({}, true).judge({&sample, 1})[0].failed);
}

TEST_CASE("failures that count 0 are told of where others count less") {
  RewardSection section;
  section.name = "length";
  section.weight = -1;
  Sample sample;
  sample.row = std::make_shared<const Json>(Json::object());
  sample.completion_tokens = {1, 2};
  sample.max_new_tokens = 4;
  std::vector<RewardSection> sections{section, RewardSection{}};
  sections[1].command = {"false"};
  const auto rewarded = [&] {
    RewardSet set(sections, true);
    set.judge({&sample, 1});
    return set.rewarded_failures();
  };
  CHECK(rewarded().empty());  // it fails, and another one is negative
  sections[1].command = {"sh", "-c", "read x; echo -1; read x; exit 1"};
  sections[1].name = "mine";
  sections[1].workers = 1;
  RewardSet set(sections, true);
  const std::vector<Sample> two{sample, sample};
  set.judge(two);
  CHECK(set.failures().all() == 1);
  CHECK(set.rewarded_failures() == "mine");
  sections[1].on_failure = RewardSection::OnFailure::kDrop;
  RewardSet dropping(sections, true);
  dropping.judge(two);
  CHECK(dropping.failures().all() == 1);
  CHECK(dropping.rewarded_failures().empty());
}

TEST_CASE("a pattern that takes too many steps has no verdict, and the others have theirs") {
  RewardSection section;
  section.name = "regex";
  section.pattern = "^(a+)+$";
  std::vector<Sample> samples(2);
  for (Sample& s : samples) s.row = std::make_shared<const Json>(Json::object());
  samples[0].completion = std::string(40, 'a') + "!";
  samples[1].completion = "aaa";
  const std::vector<Verdict> verdicts = make_reward(section)->judge(samples);
  CHECK(verdicts[0].kind == Verdict::Kind::kTimedOut);
  CHECK(verdicts[1].value == 1);
}
