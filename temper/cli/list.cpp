#include <iostream>

#include "temper/base/error.h"
#include "temper/cli/verbs.h"
#include "temper/metrics/sink.h"
#include "temper/models/model.h"
#include "temper/rewards/reward.h"
#include "temper/rl/algorithm.h"

namespace temper::cli {
namespace {
void line(const char* name, const char* help) {
  std::cout << name << std::string(std::max<size_t>(1, 14 - std::string(name).size()), ' ') << help
            << "\n";
}
}  // namespace

int run_list(const Arguments& arguments) {
  const std::string what = arguments.empty() ? "" : arguments[0];
  if (what == "--help" || what == "-h") {
    std::cout << "usage: temper list models|algorithms|rewards|losses|sinks\n";
  } else if (what == "models") {
    for (const auto& family : models::families().list())
      line(family.name.c_str(), family.help.c_str());
  } else if (what == "sinks") {
    for (const SinkEntry& sink : sinks()) line(sink.name, sink.help);
  } else if (what == "losses") {
    line("sft", "negative log-likelihood of the supervised tokens");
  } else if (what == "algorithms") {
    for (const rl::Algorithm& algorithm : rl::algorithms()) line(algorithm.name, algorithm.help);
  } else if (what == "rewards") {
    for (const rewards::RewardEntry& reward : rewards::registry())
      line(reward.name.c_str(), reward.help.c_str());
  } else {
    throw ConfigError("temper list: found `" + what +
                      "`, expected models, algorithms, rewards, losses or sinks");
  }
  return 0;
}

}  // namespace temper::cli
