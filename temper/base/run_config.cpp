#include "temper/base/run_config.h"

#include "temper/base/error.h"
#include "temper/base/run_config_checks.h"

namespace temper {

template <>
inline constexpr std::array enum_names<ModelSection::Dtype> = {"float32", "bfloat16"};
template <>
inline constexpr std::array enum_names<ModelSection::Device> = {"auto", "cpu", "cuda"};
template <>
inline constexpr std::array enum_names<AdapterSection::Method> = {"none", "lora", "qlora"};
template <>
inline constexpr std::array enum_names<DataSection::Overlong> = {"truncate", "drop", "error"};
template <>
inline constexpr std::array enum_names<DataSection::TrainOn> = {"auto", "all", "completion",
                                                                "assistant"};
template <>
inline constexpr std::array enum_names<TrainSection::Recompute> = {"none", "blocks"};
template <>
inline constexpr std::array enum_names<OptimizerSection::Schedule> = {"cosine", "linear",
                                                                      "constant"};
template <>
inline constexpr std::array enum_names<RlSection::KlEstimator> = {"k1", "k2", "k3"};
template <>
inline constexpr std::array enum_names<RlSection::Importance> = {"token", "sequence"};
template <>
inline constexpr std::array enum_names<RlSection::Aggregation> = {
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"};
template <>
inline constexpr std::array enum_names<RlSection::OnMismatch> = {"stop", "correct"};
template <>
inline constexpr std::array enum_names<RewardSection::OnFailure> = {"zero", "drop", "stop"};
template <>
inline constexpr std::array enum_names<PreferenceSection::TrainOn> = {"completion", "all"};

// What the papers set, laid under what the user wrote. DAPO's defaults that depend on other keys
// are in complete_run_config.
static YamlNode algorithm_defaults(const YamlNode& written) {
  static constexpr struct {
    const char *algorithm, *values;
  } kDefaults[] = {
      {"dr_grpo",
       "{beta: 0, scale_rewards: false, loss_aggregation: seq-mean-token-sum-norm}"},  // arXiv
                                                                                       // 2503.20783
      {"dapo",
       "{beta: 0, epsilon_low: 0.2, epsilon_high: 0.28, loss_aggregation: token-mean}"},  // arXiv
                                                                                          // 2503.14476
      {"gspo",
       "{beta: 0, importance: sequence, epsilon_low: 3e-4, epsilon_high: 4e-4}"},  // arXiv
                                                                                   // 2507.18071
      {"rloo", "{beta: 0}"},  // arXiv 2402.14740
  };
  const YamlNode* algorithm = find_key(written, "rl.algorithm");
  for (const auto& [name, values] : kDefaults)
    if (algorithm && algorithm->text == name)
      return parse_yaml(str("rl: ", values), str("defaults of ", name), true);
  return YamlNode::map();
}

void ModelSection::fields(Fields& f) {
  f.add("path", path, "directory of a Hugging Face model");
  f.add("dtype", dtype, "of the computation; weights and the optimizer's moments stay float32");
  f.add("device", device, "where to compute");
}
void AdapterSection::fields(Fields& f) {
  f.add("method", method,
        "none trains all weights; lora a low-rank update; qlora the same over 4-bit weights");
  f.add("rank", rank, "rank of the update", at_least(1));
  f.add("alpha", alpha, "the update is scaled by alpha / rank", above(0));
  f.add("dropout", dropout, "on the adapter's input", fraction());
  f.add("target_modules", target_modules, "all-linear, or names of linear layers", one_or_list());
  f.add("use_rslora", use_rslora, "scale by alpha / sqrt(rank)");
  f.add("path", path, "a PEFT adapter to go on from; rank, alpha and modules are its own");
}
void DataSource::fields(Fields& f) {
  f.add("path", path, "file of rows", required());
  f.add("weight", weight, "how often it is drawn from, relative to the others", above(0));
  f.add("name", name, "what its metrics are called");
}
void DataSection::fields(Fields& f) {
  f.add("train", train, "rows to train on: a path, or a list of {path, weight, name}",
        one_or_list());
  f.add("eval", eval, "rows to evaluate on, written like data.train", one_or_list());
  f.add("columns", columns,
        "names of a row's fields in the file, as {prompt: question, completion: answer}");
  f.add("max_length", max_length, "most tokens of a row", at_least(2));
  f.add("overlong", overlong, "what happens to longer rows; counted and reported");
  f.add("shuffle", shuffle,
        "false: file order, each step the next batch_size rows, then around again");
  f.add("packing", packing, "several rows in one forward pass; changes the speed, never a loss");
  f.add("train_on", train_on,
        "which tokens are trained; auto: the completion or the assistant's turns where rows have "
        "them");
}
void TrainSection::fields(Fields& f) {
  f.add("max_steps", max_steps, "optimizer updates of the run; null: as train.epochs says",
        at_least(1));
  f.add("epochs", epochs, "passes over the data where max_steps is null; null: 1", above(0));
  f.add("batch_size", batch_size, "rows a step, over all ranks and micro-batches", at_least(1));
  f.add("micro_batch_tokens", micro_batch_tokens,
        "most tokens in one forward pass; a longer row gets a pass of its own", at_least(1));
  f.add("recompute", recompute, "what the backward pass computes again to save memory");
  f.add("eval_every", eval_every, "steps between evaluations; 0: none", at_least(0));
  f.add("save_every", save_every,
        "steps between checkpoints; 0: only at the end and when interrupted", at_least(0));
  f.add("keep_checkpoints", keep_checkpoints, "how many checkpoints stay on disk", at_least(1));
}
void OptimizerSection::fields(Fields& f) {
  f.add("name", name, "how gradients update weights", one_of({"adamw", "sgd"}));
  f.add("learning_rate", learning_rate, "base rate", at_least(0));
  f.add("betas", betas, "decay of AdamW's two moments", fraction());
  f.add("eps", eps, "added to the root of the second moment", above(0));
  f.add("momentum", momentum, "of SGD", fraction());
  f.add("weight_decay", weight_decay, "decoupled; on tensors of two or more dimensions",
        at_least(0));
  f.add("max_grad_norm", max_grad_norm, "global norm to clip to; 0: no clipping", at_least(0));
  f.add("schedule", schedule, "of the learning rate after the warm-up");
  f.add("warmup_steps", warmup_steps, "steps in which the rate rises from 0 to learning_rate",
        at_least(0));
  f.add("final_lr_fraction", final_lr_fraction,
        "share of learning_rate that the schedule ends with", between(0, 1));
}
void RlSection::fields(Fields& f) {
  f.add(
      "algorithm", algorithm,
      "the policy gradient (temper list algorithms); sets its paper's defaults for the keys below");
  f.add("group_size", group_size, "completions of a prompt", at_least(1));
  f.add("prompts_per_rollout", prompts_per_rollout, "prompts of a rollout batch", at_least(1));
  f.add("minibatches", minibatches,
        "updates made from one rollout batch, each on its own rows, in order", at_least(1));
  f.add("iterations", iterations, "times a rollout batch is gone through", at_least(1));
  f.add("beta", beta, "weight of the KL term to the reference model; 0: none is loaded",
        at_least(0));
  f.add("kl_estimator", kl_estimator, "estimator of the KL term (k3: exp(d) - d - 1)");
  f.add("epsilon_low", epsilon_low, "the importance ratio is clipped below 1 - epsilon_low",
        at_least(0));
  f.add("epsilon_high", epsilon_high, "and above 1 + epsilon_high", at_least(0));
  f.add("importance", importance, "whether a token or a whole completion has an importance ratio");
  f.add("loss_aggregation", loss_aggregation, "how the losses of tokens become one number");
  f.add("scale_rewards", scale_rewards,
        "divide advantages by the group's standard deviation + 1e-6");
  f.add("replay", replay, "a rollouts file to train on instead of sampling");
  f.add("on_mismatch", on_mismatch,
        "when sampler and trainer disagree: stop, or correct by truncated importance sampling");
  f.add("dynamic_sampling", dynamic_sampling,
        "sample again for groups whose rewards are all equal (DAPO)");
  f.add("max_refills", max_refills, "most times that dynamic sampling fills up one rollout batch",
        at_least(0));
  f.add("overlong_buffer", overlong_buffer,
        "soft length penalty over the last so many of max_new_tokens (DAPO); 0: none", at_least(0));
  f.add("entropy_bonus", entropy_bonus, "weight of the mean entropy, subtracted from the loss",
        at_least(0));
  f.add("dual_clip", dual_clip,
        "where the advantage is negative, the loss of a token is at most so many times it (3 is "
        "usual); 0: no bound",
        at_least(0));
  f.add("importance_cap", importance_cap,
        "under on_mismatch: correct, the most that trainer / sampler counts", above(0));
}
void RolloutSection::fields(Fields& f) {
  f.add("max_new_tokens", max_new_tokens, "most tokens of a completion", at_least(1));
  f.add("temperature", temperature, "of sampling and of the policy's log-probabilities; 0: greedy",
        at_least(0));
  f.add("top_k", top_k, "sample among so many likeliest tokens; 0: all", at_least(0));
  f.add("top_p", top_p, "sample among the likeliest tokens that have this mass together",
        Rule{.min = 0, .max = 1, .above_min = true});
  f.add("min_p", min_p, "leave out tokens below this share of the likeliest one's probability",
        between(0, 1));
  f.add("repetition_penalty", repetition_penalty,
        "divides the logits of tokens that occurred; 1: none", above(0));
  f.add("stop", stop, "texts that end a completion and are cut from it", one_or_list());
  f.add("ignore_eos", ignore_eos, "go on after an end token, to max_new_tokens");
  f.add("cache_bytes", cache_bytes,
        "most memory for keys and values; null: a quarter of what is usable", at_least(1));
}
std::string RewardSection::label() const {
  if (!name.empty() || command.empty()) return name;
  return command.front().substr(command.front().rfind('/') + 1);
}
void RewardSection::fields(Fields& f) {
  f.add("name", name, "a built-in reward; of a command: what its metrics are called");
  f.add("weight", weight, "factor of this reward in the sum");
  f.add("field", field, "the row's field that gsm8k, math and exact compare with");
  f.add("pattern", pattern, "what regex looks for");
  f.add("command", command,
        "a program and its arguments: a row of JSON in, a line with a number out");
  f.add("timeout_seconds", timeout_seconds, "for one answer of the command", above(0));
  f.add("start_timeout_seconds", start_timeout_seconds, "until a worker of the command has started",
        above(0));
  f.add("workers", workers, "processes of the command", at_least(1));
  f.add("memory_bytes", memory_bytes, "address space of a worker; null: unlimited", at_least(1));
  f.add("on_failure", on_failure, "what a timeout, a crash or a malformed answer does");
}
void PreferenceSection::fields(Fields& f) {
  f.add("loss", loss, "of dpo: -log sigmoid(beta x margin)", one_of({"sigmoid"}));
  f.add("beta", beta, "of dpo: scale of the margin over the reference model", at_least(0));
  f.add("lambda", lambda, "of orpo: weight of the odds-ratio term", at_least(0));
  f.add("train_on", train_on, "of orpo: whether the likelihood term counts the prompt too");
}
void MetricsSection::fields(Fields& f) {
  f.add("sinks", sinks, "where metrics go: console, jsonl, csv, tensorboard", one_or_list());
}

void RunConfig::fields(Fields& f) {
  f.add("output_dir", output_dir, "the directory for everything that the run leaves", required());
  f.add("seed", seed, "of every random number of the run", at_least(0));
  f.add("resume", resume, "auto (from the newest checkpoint), never, or a checkpoint's path");
  f.add("verb", verb, "the training verb; written to the resolved config",
        one_of({"sft", "dpo", "orpo", "grpo", "ppo", "distill"}));
  f.add("model", model, "the model to train");
  f.add("adapter", adapter, "what is trained instead of all weights");
  f.add("data", data, "rows and how they are read");
  f.add("train", train, "length and shape of the run");
  f.add("optimizer", optimizer, "how weights are updated");
  f.add("rl", rl, "of grpo and ppo");
  f.add("rollout", rollout, "how completions are sampled in grpo and ppo");
  f.add("rewards", rewards,
        "what a completion is worth: a list of {name, weight} or {command, ...}", one_or_list());
  f.add("preference", preference, "of dpo and orpo");
  f.add("metrics", metrics, "what is recorded");
}

std::string RunConfig::where(std::string_view key) const {
  const YamlNode* node = find_key(written, key);
  return node ? str(node->origin.str(), ": ", key) : std::string(key);
}

RunConfig load_run_config(std::span<const std::string> arguments, std::string_view verb) {
  RunConfig config;
  config.written = read_config_arguments(arguments);
  YamlNode values = algorithm_defaults(config.written);
  merge_yaml(values, config.written);
  read_fields(values, "", Fields::of(config));
  check<ConfigError>(verb.empty() || !config.verb || *config.verb == verb, config.where("verb"),
                     ": the config is for ", config.verb.value_or(""), ", the command is ", verb);
  if (!verb.empty()) config.verb = verb;
  complete_run_config(config);
  check_run_config(config);
  return config;
}

std::string dump_run_config(RunConfig config, bool with_help) {
  return dump_yaml(write_fields(Fields::of(config), with_help));
}

std::string describe_run_config() {
  RunConfig config;
  return describe_fields(Fields::of(config));
}

}  // namespace temper
