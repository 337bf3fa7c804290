#include "temper/rl/config.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "temper/base/error.h"
#include "temper/generate/remote/protocol.h"
#include "temper/rl/episode.h"

namespace temper::rl {

std::vector<std::string> RlConfig::evaluated_metrics() const {
  if (!train.eval_rewards.empty()) return {};
  std::vector<std::string> metrics{"reward_mean", "completion_length_mean", "truncated_fraction",
                                   "rows"};
  for (const rewards::RewardSection& reward : rewards)
    metrics.push_back("rewards/" + reward.label());
  if (environment.any())
    metrics.insert(metrics.end(), {"turns_mean", str("rewards/", kEnvironmentReward)});
  return with_groups(std::move(metrics), {"reward"});
}

void RlConfig::fields(Fields& f) {
  RunConfig::fields(f);
  f.add("rl", rl, "the algorithm, and how rollout batches become updates");
  f.add("rollout", rollout, "how completions are sampled");
  f.add("rewards", rewards,
        "reward functions: a list of {name, weight}, {command, ...} or {model, ...}",
        one_or_list());
  f.add("environment", environment,
        "multi-turn episodes: a program, tools, or a built-in environment");
}

// The algorithm brings keys and defaults.
void RlConfig::prepare() {
  RunConfig::prepare();
  const YamlNode* name = find_key(written, "rl.algorithm");
  if (name && name->kind == YamlNode::Kind::kScalar)
    rl.set_algorithm(name->text, name->origin.str() + ": rl.algorithm");
  refuse_keys_of_others();
  refuse_empty_programs();
}

// An empty list is no program that was forgotten only in a resolved config, which has both keys.
void RlConfig::refuse_empty_programs() const {
  constexpr std::array kPrograms{"environment.command", "environment.openai.command"};
  if (was_set(kPrograms[0]) && was_set(kPrograms[1])) return;
  for (const char* key : kPrograms) {
    const YamlNode* node = find_key(written, key);
    require(!node || node->kind != YamlNode::Kind::kList || !node->items.empty(), key,
            "found an empty list, expected a program and its arguments, or null for none");
  }
}

// A key that only other algorithms have is no misspelling of one of this one's.
void RlConfig::refuse_keys_of_others() {
  const YamlNode* section = find_key(written, "rl");
  if (!section) return;
  const auto has = [](const std::vector<Field>& fields, const std::string& key) {
    return std::any_of(fields.begin(), fields.end(),
                       [&](const Field& field) { return field.name == key; });
  };
  const std::vector<Field> own = Fields::of(rl);
  for (const YamlNode::Entry& entry : section->entries) {
    if (has(own, entry.key)) continue;
    std::string others;
    for (const auto& other : algorithms().list())
      if (has(Fields::of(*other.value()), entry.key))
        others += (others.empty() ? "" : ", ") + other.name;
    check<ConfigError>(others.empty(), entry.origin.str(), ": unknown key `rl.", entry.key, "`; ",
                       has_critic() ? "it belongs to `temper grpo`, whose algorithms compare the "
                                      "completions of a prompt: "
                                    : "other algorithms have it (rl.algorithm): ",
                       others);
  }
}

void RlConfig::complete() {
  RunConfig::complete();
  rewards::note_written(find_key(written, "rewards"), rewards);
  // Where products round to bfloat16 by default, so does attention, and flash kernels read such a
  // cache.
  if (defaulted.contains("model.arithmetic") && !was_set("rollout.cache_dtype") &&
      !rollout.server.used()) {
    rollout.cache_dtype = ops::CacheDtype::kBFloat16;
    defaulted["rollout.cache_dtype"] = "bfloat16";
  }
  const bool split = !roles.rollout.empty() && mesh.tensor != roles.tensor;
  if (!was_set("rl.on_mismatch") && rl.on_mismatch == RlSection::OnMismatch::kStop) {
    const bool exact = models::is_exact(device_choice());
    const bool differs =
        rl.max_staleness > 0 || rollout.server.used() || split || (!exact && !rl.replay);
    if (differs) rl.on_mismatch = RlSection::OnMismatch::kCorrect;
    // Recorded also where the default stays stop: rl.replay takes a stop that a user wrote more
    // strictly.
    defaulted["rl.on_mismatch"] = differs ? "correct" : "stop";
  }
  // While one rank waits for a server, the others wait for that rank in a collective.
  if (!was_set("mesh.timeout_minutes"))
    mesh.timeout_minutes = std::max(
        mesh.timeout_minutes, dist::MeshSection().timeout_minutes + rollout.server.wait_minutes);
  const RolloutLimits limits = rollout_limits();
  rl.algorithm->prepare(limits);
  // A program may have set keys in C++, which no file shows: what the algorithm chose is what one
  // that nobody touched has.
  const std::unique_ptr<Algorithm> untouched = rl.untouched_algorithm();
  untouched->prepare(limits);
  const auto text = [](const Field& key) { return dump_yaml(write_fields({&key, 1})); };
  std::set<std::string> chosen;
  for (const Field& key : Fields::of(*untouched)) chosen.insert(text(key));
  for (const Field& key : Fields::of(*rl.algorithm))
    if (!was_set("rl." + key.name) && chosen.contains(text(key)))
      defaulted["rl." + key.name] = key.write().text;
  std::string unused;
  for (const std::string& key : rl.algorithm->unused_keys())
    if (was_set("rl." + key)) unused += str(unused.empty() ? "" : ", ", "rl.", key);
  if (!unused.empty())
    warnings.push_back(
        str("without effect under rl.algorithm: ", rl.algorithm_name(), ": ", unused));
  if (!rl.algorithm->needs().reference)
    for (const char* key : {"rl.reference", "rl.reference_update_every"})
      if (was_set(key) && (rl.reference || rl.reference_update_every > 0))
        warnings.push_back(str(where(key), " has no effect: rl.beta is 0"));
  if (train.batch_size != train::TrainSection().batch_size)
    warnings.emplace_back(
        "train.batch_size has no effect here: an update has rl.prompts_per_rollout x "
        "rl.group_size / rl.minibatches completions");
}

RolloutLimits RlConfig::rollout_limits() const {
  RolloutLimits limits{rollout.max_new_tokens, !rl.replay.has_value()};
  for (const rewards::RewardSection& reward : rewards)
    limits.reward_weights[reward.label()] = reward.weight;
  return limits;
}

std::vector<train::MissingKey> RlConfig::missing() const {
  std::vector<train::MissingKey> keys = RunConfig::missing();
  const bool from_environment = !environment.name.empty() || !environment.command.empty() ||
                                !environment.openai.command.empty();
  if (rl.replay)
    std::erase_if(keys, [](const train::MissingKey& m) { return m.key == "data.train"; });
  else if (rewards.empty() && !from_environment && env::find_problem(environment).empty())
    keys.push_back({"rewards", str(environment.any() ? "tools give no rewards; " : "",
                                   "a list of {name, weight}, {command, ...} or {model, ...}")});
  return keys;
}

std::string RlConfig::no_rollout_role() const {
  if (rl.replay) return "rl.replay is read instead of sampling";
  if (rollout.server.used()) return "the servers of rollout.server sample";
  return {};
}

std::string RlConfig::no_reference_role() const {
  if (rl.algorithm->needs().reference) return {};
  return "no reference model is asked for (rl.beta is 0)";
}

std::string RlConfig::no_reward_role() const {
  const auto is_model = &rewards::RewardSection::is_model;
  if (std::ranges::any_of(train.eval_rewards, is_model)) return {};
  if (rl.replay) return "rl.replay has the rewards";
  if (std::ranges::none_of(rewards, is_model))
    return "no entry of rewards has a model or a judge's model";
  return {};
}

bool RlConfig::servers_take_rows() const {
  return generate::remote::make_protocol(rollout.server.kind, 0)->takes_token_rows();
}

}  // namespace temper::rl
