#include "temper/base/run_config_checks.h"

#include <algorithm>
#include <set>

#include "temper/base/error.h"

namespace temper {
namespace {

// DAPO's soft penalty covers 4096 of its 20480 tokens (arXiv 2503.14476, section 4.1).
constexpr int64_t kDapoTokensPerOverlongToken = 5;

template <class... Parts>
void require(bool cond, const RunConfig& config, std::string_view key, const Parts&... parts) {
  if (!cond) throw ConfigError(str(config.where(key), " is required: ", parts...));
}

template <class... Parts>
void check_key(bool cond, const RunConfig& config, std::string_view key, const Parts&... parts) {
  if (!cond) throw ConfigError(str(config.where(key), ": ", parts...));
}

bool samples(const RunConfig& c) { return (c.verb == "grpo" || c.verb == "ppo") && !c.rl.replay; }

void check_adapter(const RunConfig& c) {
  using Method = AdapterSection::Method;
  const AdapterSection& a = c.adapter;
  check_key(!a.path || a.method != Method::kNone, c, "adapter.method",
            "found none, but adapter.path names an adapter");
  check_key(!a.target_modules.empty() || a.method == Method::kNone, c, "adapter.target_modules",
            "found an empty list, expected all-linear or names of linear layers");
  const bool all = std::count(a.target_modules.begin(), a.target_modules.end(), "all-linear") > 0;
  check_key(!all || a.target_modules.size() == 1, c, "adapter.target_modules",
            "all-linear stands alone");
  const bool rl = c.verb == "grpo" || c.verb == "ppo";
  check_key(!rl || a.dropout == 0, c, "adapter.dropout", "found ", a.dropout, ", expected 0 under ",
            c.verb.value_or(""), ": the sampler's log-probabilities must be the trainer's");
}

void check_data(const RunConfig& c) {
  if (!c.verb) return;
  require(!c.model.path.empty(), c, "model.path", "the directory of a Hugging Face model");
  const bool replays = (c.verb == "grpo" || c.verb == "ppo") && c.rl.replay;
  require(!c.data.train.empty() || replays, c, "data.train",
          "a file of rows, or a list of {path, weight, name}");
}

void check_train(const RunConfig& c) {
  const TrainSection& t = c.train;
  check_key(!t.max_steps || !t.epochs, c, "train.epochs",
            "train.max_steps is set too; give one of them");
  check_key(!t.max_steps || c.optimizer.warmup_steps <= *t.max_steps, c, "optimizer.warmup_steps",
            "found ", c.optimizer.warmup_steps, ", expected at most train.max_steps, ",
            t.max_steps.value_or(0));
  check_key(t.eval_every == 0 || !c.data.eval.empty(), c, "train.eval_every",
            "there is no data.eval to evaluate on");
  check_key(c.optimizer.name == "sgd" || c.optimizer.momentum == 0, c, "optimizer.momentum",
            "found ", c.optimizer.momentum, ", expected 0: momentum is sgd's, adamw has betas");
}

constexpr int64_t kMostRollouts = 1'000'000;

void check_rl(const RunConfig& c) {
  const RlSection& rl = c.rl;
  check_key(rl.prompts_per_rollout <= kMostRollouts / rl.group_size, c, "rl.prompts_per_rollout",
            "found ", rl.prompts_per_rollout, " of rl.group_size ", rl.group_size,
            ", expected at most ", kMostRollouts, " completions in a rollout batch");
  const int64_t rows = rl.prompts_per_rollout * rl.group_size;
  check_key(rl.minibatches <= rows, c, "rl.minibatches", "found ", rl.minibatches,
            ", expected at most the ", rows,
            " rows of a rollout batch (rl.prompts_per_rollout x rl.group_size)");
  check_key(rl.overlong_buffer <= c.rollout.max_new_tokens, c, "rl.overlong_buffer", "found ",
            rl.overlong_buffer, ", expected at most rollout.max_new_tokens, ",
            c.rollout.max_new_tokens);
  if (!samples(c)) return;
  check_key(c.rollout.temperature > 0, c, "rollout.temperature",
            "found 0, expected number > 0 under ", *c.verb,
            ": greedy completions are all the same");
  check_key(c.verb == "ppo" || rl.group_size >= 2, c, "rl.group_size", "found ", rl.group_size,
            ", expected at least 2: an advantage compares completions of one prompt");
  require(!c.rewards.empty(), c, "rewards", "a list of {name, weight} or {command, ...}");
}

void check_rewards(const RunConfig& c) {
  std::set<std::string> names;
  for (size_t i = 0; i < c.rewards.size(); ++i) {
    const RewardSection& reward = c.rewards[i];
    const std::string name = reward.label();
    check_key(!name.empty(), c, "rewards", "reward ", i + 1, " has neither a name nor a command");
    check_key(names.insert(name).second, c, "rewards", "two rewards are called `", name,
              "`; give one another name");
  }
}

}  // namespace

void complete_run_config(RunConfig& c) {
  if (c.adapter.path && !c.was_set("adapter.method"))
    c.adapter.method = AdapterSection::Method::kLora;
  if (c.rl.algorithm == "dapo" && !c.rl.replay) {
    if (!c.was_set("rl.dynamic_sampling")) c.rl.dynamic_sampling = true;
    if (!c.was_set("rl.overlong_buffer"))
      c.rl.overlong_buffer = c.rollout.max_new_tokens / kDapoTokensPerOverlongToken;
  }
}

void check_run_config(const RunConfig& config) {
  check_data(config);
  check_adapter(config);
  check_train(config);
  check_rl(config);
  check_rewards(config);
}

}  // namespace temper
