// The key `sandbox` of rewards.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/rewards/command.h"

using namespace temper;
using namespace temper::rewards;

TEST_CASE("a reward program in a sandbox, where there are any; elsewhere it is refused") {
  RewardSection section;
  section.limits.sandbox.on = true;
  section.name = "gsm8k";
  CHECK(find_problem(std::span(&section, 1)) ==
        "`gsm8k`: sandbox: found without a command, expected it beside a program");
  section.name = "writes";
  section.timeout_seconds = section.start_timeout_seconds = 240;
  section.command = {"sh", "-c",
                     "while read -r l; do touch $TMPDIR/a && ! touch made-in-a-sandbox && echo 1 "
                     "|| echo 0; done"};
  const std::string problem = find_problem(std::span(&section, 1));
  if (!problem.empty()) {
    MESSAGE("no sandboxes here: ", problem);
    CHECK(problem.starts_with("`writes`: sandbox: not possible here: "));
    return;
  }
  std::vector<Sample> samples(3);
  for (Sample& sample : samples) sample.row = std::make_shared<const Json>(Json{{"prompt", "p"}});
  CommandReward reward(section);
  for (const Verdict& verdict : reward.judge(samples)) CHECK(verdict.value == 1);
}
