// PPO: what its credit and its losses are, and what its config refuses.
#include "temper/rl/algorithms/ppo.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "temper/rl/algorithms/gae.h"
#include "tests/rl/groups.h"

using namespace temper;

namespace {

// A group whose sampled tokens have this value.
rl::EpisodeGroup valued_group(const std::vector<int64_t>& lengths,
                              const std::vector<double>& rewards, float value = 0) {
  rl::EpisodeGroup group = rl::group_of(lengths, rewards);
  for (rl::Segment& segment : group.segments)
    if (segment.sampled) segment.value.assign(segment.tokens.size(), value);
  return group;
}

rl::Ppo without_kl() {
  rl::Ppo ppo;
  ppo.keys.beta = 0;
  ppo.section.gae_lambda = 1;
  return ppo;
}

std::string ppo_error(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"output_dir=run", "model.path=m", "data.train=d",
                                     "rewards=[gsm8k]"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  try {
    rl::PpoConfig config;
    read_run_config(config, arguments, "ppo");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a critic of zeros leaves REINFORCE with whitened rewards") {
  rl::Ppo ppo = without_kl();
  std::vector<rl::EpisodeGroup> groups{valued_group({2, 4}, {1, 0}), valued_group({3}, {5})};
  ppo.assign_batch(groups);
  std::vector<float> expected{1, 1, 0, 0, 0, 0, 5, 5, 5};  // each token its episode's reward
  rl::whiten(expected);
  std::vector<float> found;
  for (const rl::EpisodeGroup& group : groups)
    for (const rl::Segment& segment : group.segments)
      found.insert(found.end(), segment.advantage.begin(), segment.advantage.end());
  CHECK(found == expected);
  CHECK(groups[1].segments[1].returns == std::vector<float>(3, 5));  // as they were before
  // Whose loss, at a batch's first update, has the gradient of -mean(A log p).
  rl::TokenBatch b;
  b.logp_M = at::linspace(-3, -1, 9).requires_grad_(true);
  b.old_logp_M = b.logp_M.detach();
  b.entropy_M = at::zeros(9);
  b.advantage_M = at::tensor(found);
  b.value_M = b.old_value_M = b.return_M = at::zeros(9);
  b.weight_M = at::full({9}, 1.0 / 9);
  b.update_tokens = 9;
  const train::Loss loss = ppo.loss(b);
  (loss.terms[0].value * loss.terms[0].weight).sum().backward();
  CHECK(at::allclose(b.logp_M.grad(), -b.advantage_M / 9));
  CHECK(loss.terms[0].name == "policy");
  CHECK(loss.terms[1].separate);
}

TEST_CASE("a bandit's advantage is its reward less what was expected") {
  rl::Ppo ppo = without_kl();
  ppo.section.whiten_advantages = false;
  rl::EpisodeGroup arms = valued_group({1, 1, 1}, {0, 1, 0.25}, 0.5F);
  std::vector<rl::EpisodeGroup> groups{arms};
  ppo.assign_batch(groups);
  CHECK(groups[0].segments[1].advantage == std::vector<float>{-0.5F});
  CHECK(groups[0].segments[2].advantage == std::vector<float>{0.5F});
  CHECK(groups[0].segments[3].advantage == std::vector<float>{-0.25F});
  CHECK(groups[0].segments[3].returns == std::vector<float>{0.25F});
}

TEST_CASE("the KL is paid at its token, the reward and its penalty at the last one") {
  rl::Ppo ppo;
  ppo.keys.beta = 0.5;
  ppo.section = {.gamma = 1, .gae_lambda = 1, .whiten_advantages = false};
  rl::EpisodeGroup group = valued_group({3}, {2});
  group.segments[1].old_logp = {-1, -2, -3};
  group.segments[1].ref_logp = {-2, -2, -1};  // KL_t of k1: 1, 0, -2
  group.episodes[0].penalty = -0.5;
  ppo.assign(group);
  CHECK(group.segments[1].advantage == std::vector<float>{2.0F, 2.5F, 2.5F});
  MetricsRow row(1);
  ppo.describe(std::vector<const rl::Segment*>{&group.segments[1]}, row);
  CHECK(row.number("kl").value() == doctest::Approx(-1.0 / 3));
  CHECK(row.number("returns_mean").value() == doctest::Approx(7.0 / 3));
}

TEST_CASE("an observation has neither a value nor a reward") {
  rl::Ppo ppo = without_kl();
  ppo.section = {.gamma = 0.5, .gae_lambda = 1, .whiten_advantages = false};
  rl::EpisodeGroup group;
  group.segments = {{.tokens = {3}},
                    {.parent = 0, .tokens = {4, 5}, .sampled = true, .value = {1, 1}},
                    {.parent = 1, .tokens = {6, 7, 8}},
                    {.parent = 2, .tokens = {9}, .sampled = true, .value = {1}}};
  group.episodes.push_back({.path = {1, 2, 3}, .reward = 4});
  ppo.assign(group);
  CHECK(group.segments[1].advantage == std::vector<float>{0, 1});
  CHECK(group.segments[2].advantage.empty());
  CHECK(group.segments[3].advantage == std::vector<float>{3});
}

TEST_CASE("the value loss is clipped around the old values") {
  rl::Ppo ppo;
  const auto value_loss = [&](double v, double old, double target) {
    rl::TokenBatch b;
    b.logp_M = b.old_logp_M = b.entropy_M = b.advantage_M = at::zeros(1);
    b.weight_M = at::ones(1);
    b.value_M = at::full({1}, v);
    b.old_value_M = at::full({1}, old);
    b.return_M = at::full({1}, target);
    b.update_tokens = 1;
    const train::Loss loss = ppo.loss(b);
    const train::Term& term = loss.terms[1];
    return term.coefficient / term.denominator * term.value.item<double>();
  };
  CHECK(value_loss(1, 1, 3) == doctest::Approx(2));
  CHECK(value_loss(2, 1, 3) == doctest::Approx(0.5 * 1.8 * 1.8));  // it went too far already
  CHECK(value_loss(0, 1, 3) == doctest::Approx(4.5));              // the wrong way: it counts
  ppo.section.value_clip = 0;
  CHECK(value_loss(2, 1, 3) == doctest::Approx(0.5));
}

TEST_CASE("ppo says what is wrong with its config") {
  CHECK(ppo_error({}) == "no error");
  CHECK(ppo_error({"rl.algorithm=ppo"}) == "no error");
  CHECK(ppo_error({"rl.algorithm=grpo"}).find("found grpo, expected ppo") != std::string::npos);
  CHECK(ppo_error({"rl.algorithm=null"}).find("found null, expected ppo") != std::string::npos);
  CHECK(ppo_error({"rl.scale_rewards=true"}).find("scale_rewards") != std::string::npos);
  const std::string others = ppo_error({"rl.dynamic_sampling=true"});
  CHECK(
      others.starts_with("command line: rl.dynamic_sampling=true: unknown key "
                         "`rl.dynamic_sampling`; it belongs to `temper grpo`, whose algorithms "
                         "compare the completions of a prompt: "));
  CHECK(others.find("cispo, ") != std::string::npos);
  CHECK(ppo_error({"rl.dynamic_samplin=true"}).find("expected one of algorithm, group_size, ") !=
        std::string::npos);
  CHECK(ppo_error({"rl.group_siz=2"}).find("did you mean `rl.group_size`?") != std::string::npos);
  CHECK(ppo_error({"ppo.gama=0.9"}).find("did you mean `ppo.gamma`?") != std::string::npos);
  CHECK(ppo_error({"ppo.gae_lambda=1.5"}).find("ppo.gae_lambda") != std::string::npos);
  CHECK(ppo_error({"ppo.share_base=true"}).find("adapter.method: lora") != std::string::npos);
  CHECK(ppo_error({"ppo.share_base=true", "adapter.method=lora", "ppo.critic=c"})
            .find("a separate model") != std::string::npos);
  CHECK(ppo_error({"adapter.method=lora", "adapter.dropout=0.1"}).find("adapter.dropout") !=
        std::string::npos);
  rl::RlConfig grpo;
  const std::vector<std::string> arguments{"output_dir=run", "model.path=m", "rl.replay=r",
                                           "rl.algorithm=ppo"};
  CHECK_THROWS_AS(read_run_config(grpo, arguments, "grpo"), ConfigError);
}
