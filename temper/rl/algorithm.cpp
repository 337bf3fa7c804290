#include "temper/rl/algorithm.h"

#include <algorithm>
#include <string>

#include "temper/base/error.h"

namespace temper::rl {
namespace {

std::vector<Algorithm>& table() {
  static std::vector<Algorithm> algorithms{
      {"grpo", group_advantages, clipped_policy_loss,
       "group-relative advantages, KL to the reference (arXiv 2402.03300)"},
      {"dr_grpo", group_advantages, clipped_policy_loss,
       "GRPO without its biases of length and difficulty (arXiv 2503.20783)"},
      {"dapo", group_advantages, clipped_policy_loss,
       "clip-higher, token-mean loss, dynamic sampling, overlong shaping (arXiv 2503.14476)"},
      {"gspo", group_advantages, clipped_policy_loss,
       "importance ratio and clipping of whole completions (arXiv 2507.18071)"},
      {"rloo", leave_one_out_advantages, rloo_loss,
       "REINFORCE with a leave-one-out baseline (arXiv 2402.14740)"},
  };
  return algorithms;
}

}  // namespace

std::span<const Algorithm> algorithms() { return table(); }

void register_algorithm(Algorithm algorithm) {
  for (const Algorithm& known : table())
    check<ConfigError>(std::string_view(known.name) != algorithm.name, "an algorithm `",
                       algorithm.name, "` is there already");
  table().push_back(algorithm);
}

const Algorithm& find_algorithm(const RunConfig& config) {
  const std::string& name = config.rl.algorithm;
  std::vector<std::string> names;
  std::string known;
  for (const Algorithm& algorithm : table()) {
    if (algorithm.name == name) return algorithm;
    names.push_back(algorithm.name);
    known += str(known.empty() ? "" : " | ", algorithm.name);
  }
  const std::string found = name.substr(0, 80);
  throw ConfigError(str(config.where("rl.algorithm"), ": found `", found, "`, expected ", known,
                        "; did you mean `", nearest(found, names), "`?"));
}

bool all_equal(std::span<const double> rewards) {
  return std::all_of(rewards.begin(), rewards.end(), [&](double r) { return r == rewards[0]; });
}

}  // namespace temper::rl
