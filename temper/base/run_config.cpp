#include "temper/base/run_config.h"

#include "temper/base/error.h"

namespace temper {

template <> inline constexpr std::array enum_names<ModelSection::Dtype> = {"float32", "bfloat16"};
template <> inline constexpr std::array enum_names<ModelSection::Device> = {"auto", "cpu", "cuda"};
template <> inline constexpr std::array enum_names<AdapterSection::Method> = {"none", "lora", "qlora"};
template <> inline constexpr std::array enum_names<DataSection::Overlong> = {"truncate", "drop", "error"};
template <> inline constexpr std::array enum_names<DataSection::TrainOn> = {"auto", "all", "completion", "assistant"};
template <> inline constexpr std::array enum_names<TrainSection::Recompute> = {"none", "blocks"};
template <> inline constexpr std::array enum_names<OptimizerSection::Schedule> = {"cosine", "linear", "constant"};
template <> inline constexpr std::array enum_names<RlSection::KlEstimator> = {"k1", "k2", "k3"};
template <> inline constexpr std::array enum_names<RlSection::Importance> = {"token", "sequence"};
template <> inline constexpr std::array enum_names<RlSection::Aggregation> = {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
                                                                          "seq-mean-token-sum-norm"};
template <> inline constexpr std::array enum_names<RlSection::OnMismatch> = {"stop", "correct"};
template <> inline constexpr std::array enum_names<RewardSection::OnFailure> = {"zero", "drop", "stop"};
template <> inline constexpr std::array enum_names<PreferenceSection::TrainOn> = {"completion", "all"};

void ModelSection::fields(Fields& f) {
  f.add("path", path, "directory of a Hugging Face model");
  f.add("dtype", dtype, "of the computation; weights and moments stay float32");
  f.add("device", device, "where to run");
}
void AdapterSection::fields(Fields& f) {
  f.add("method", method, "none trains all weights");
  f.add("rank", rank, "rank of the low-rank update", at_least(1));
  f.add("alpha", alpha, "the update is scaled by alpha / rank", above(0));
  f.add("dropout", dropout, "on the adapter's input", fraction());
  f.add("target_modules", target_modules, "all-linear, or names of linear layers", one_or_list());
  f.add("use_rslora", use_rslora, "scale by alpha / sqrt(rank)");
  f.add("path", path, "a PEFT adapter to go on from");
}
void DataSource::fields(Fields& f) {
  f.add("path", path, "file of rows", required());
  f.add("weight", weight, "how often it is drawn from, relative to the others", above(0));
  f.add("name", name, "what its metrics are called");
}
void DataSection::fields(Fields& f) {
  f.add("train", train, "rows to train on", one_or_list());
  f.add("eval", eval, "rows to evaluate on", one_or_list());
  f.add("columns", columns, "what a row's fields are called in the file");
  f.add("max_length", max_length, "most tokens of a row", at_least(2));
  f.add("overlong", overlong, "what happens to longer rows");
  f.add("shuffle", shuffle, "false: file order");
  f.add("packing", packing, "changes the speed, never a loss");
  f.add("train_on", train_on, "which tokens are trained");
}
void TrainSection::fields(Fields& f) {
  f.add("max_steps", max_steps, "optimizer updates", at_least(1));
  f.add("epochs", epochs, "passes over the data", above(0));
  f.add("batch_size", batch_size, "rows a step, over all ranks", at_least(1));
  f.add("micro_batch_tokens", micro_batch_tokens, "most tokens in one forward pass", at_least(1));
  f.add("recompute", recompute, "recompute activations in the backward pass");
  f.add("eval_every", eval_every, "steps between evaluations; 0: none", at_least(0));
  f.add("save_every", save_every, "steps between checkpoints; 0: at the end", at_least(0));
  f.add("keep_checkpoints", keep_checkpoints, "how many are kept", at_least(1));
}
void OptimizerSection::fields(Fields& f) {
  f.add("name", name, "how weights are updated", one_of({"adamw", "sgd"}));
  f.add("learning_rate", learning_rate, "base rate", at_least(0));
  f.add("betas", betas, "decay of AdamW's two moments", fraction());
  f.add("eps", eps, "added to the root of the second moment", above(0));
  f.add("momentum", momentum, "of SGD", fraction());
  f.add("weight_decay", weight_decay, "decoupled; on tensors of two or more dimensions", at_least(0));
  f.add("max_grad_norm", max_grad_norm, "global norm to clip to; 0: no clipping", at_least(0));
  f.add("schedule", schedule, "of the rate after warm-up");
  f.add("warmup_steps", warmup_steps, "steps of linear warm-up", at_least(0));
  f.add("final_lr_fraction", final_lr_fraction, "of the base rate at the end", between(0, 1));
}
void RlSection::fields(Fields& f) {
  f.add("algorithm", algorithm, "sets the paper's defaults below", one_of({"grpo", "dr_grpo", "dapo", "gspo", "rloo"}));
  f.add("group_size", group_size, "completions of a prompt", at_least(1));
  f.add("prompts_per_rollout", prompts_per_rollout, "prompts of a rollout batch", at_least(1));
  f.add("minibatches", minibatches, "updates from one rollout batch", at_least(1));
  f.add("iterations", iterations, "times the batch is gone through", at_least(1));
  f.add("beta", beta, "weight of the KL term", at_least(0));
  f.add("kl_estimator", kl_estimator, "of the KL term");
  f.add("epsilon_low", epsilon_low, "clip range below 1", at_least(0));
  f.add("epsilon_high", epsilon_high, "clip range above 1", at_least(0));
  f.add("importance", importance, "level of the ratio");
  f.add("loss_aggregation", loss_aggregation, "how token losses become one");
  f.add("scale_rewards", scale_rewards, "divide by the group's deviation");
  f.add("replay", replay, "a rollouts file to train on");
  f.add("on_mismatch", on_mismatch, "when sampler and trainer disagree");
  f.add("dynamic_sampling", dynamic_sampling, "refill groups without signal");
  f.add("max_refills", max_refills, "of dynamic sampling", at_least(0));
  f.add("overlong_buffer", overlong_buffer, "tokens of soft length penalty", at_least(0));
  f.add("entropy_bonus", entropy_bonus, "weight of the entropy", at_least(0));
}
void RolloutSection::fields(Fields& f) {
  f.add("max_new_tokens", max_new_tokens, "most tokens of a completion", at_least(1));
  f.add("temperature", temperature, "of sampling", at_least(0));
  f.add("top_k", top_k, "0: all", at_least(0));
  f.add("top_p", top_p, "mass of the likeliest tokens", Rule{.min = 0, .max = 1, .above_min = true});
  f.add("min_p", min_p, "share of the likeliest token's probability", between(0, 1));
  f.add("repetition_penalty", repetition_penalty, "1: none", above(0));
  f.add("stop", stop, "texts that end a completion", one_or_list());
  f.add("ignore_eos", ignore_eos, "go on after an end token");
  f.add("cache_bytes", cache_bytes, "memory of keys and values", at_least(1));
}
void RewardSection::fields(Fields& f) {
  f.add("name", name, "a built-in reward");
  f.add("weight", weight, "in the sum of rewards");
  f.add("command", command, "a program that reads rows and writes numbers");
  f.add("timeout_seconds", timeout_seconds, "for one answer", above(0));
  f.add("start_timeout_seconds", start_timeout_seconds, "for a worker's first answer", above(0));
  f.add("workers", workers, "processes", at_least(1));
  f.add("memory_bytes", memory_bytes, "limit of a worker", at_least(1));
  f.add("on_failure", on_failure, "what a timeout, crash or malformed answer does");
}
void PreferenceSection::fields(Fields& f) {
  f.add("loss", loss, "of preference training", one_of({"sigmoid"}));
  f.add("beta", beta, "of DPO", at_least(0));
  f.add("lambda", lambda, "of ORPO", at_least(0));
  f.add("train_on", train_on, "what ORPO's likelihood counts");
}
void MetricsSection::fields(Fields& f) { f.add("sinks", sinks, "where metrics go", one_or_list()); }

void RunConfig::fields(Fields& f) {
  f.add("output_dir", output_dir, "where everything that the run leaves goes", required());
  f.add("seed", seed, "of every random number", at_least(0));
  f.add("resume", resume, "auto | never | a checkpoint's path");
  f.add("verb", verb, "written to the resolved config");
  f.add("model", model, "");
  f.add("adapter", adapter, "");
  f.add("data", data, "");
  f.add("train", train, "");
  f.add("optimizer", optimizer, "");
  f.add("rl", rl, "");
  f.add("rollout", rollout, "");
  f.add("rewards", rewards, "rewards and their weights", one_or_list());
  f.add("preference", preference, "");
  f.add("metrics", metrics, "");
}

std::string RunConfig::where(std::string_view key) const {
  const YamlNode* node = find_key(written, key);
  return node && node->origin.source ? node->origin.str() + ": " + std::string(key) : std::string(key);
}

RunConfig load_run_config(std::span<const std::string> arguments, std::string_view verb) {
  RunConfig c;
  c.written = read_config_arguments(arguments);
  const std::vector<Field> fields = Fields::of(c);
  read_fields(c.written, "", fields);
  check<ConfigError>(!c.output_dir.empty(), "output_dir is required: the directory for everything that the run leaves");
  if (verb.empty()) return c;
  c.verb = std::string(verb);
  check<ConfigError>(!c.model.path.empty(), "model.path is required: the directory of a Hugging Face model");
  check<ConfigError>(!c.data.train.empty(), "data.train is required: a file of rows, or a list of {path, weight, name}");
  check<ConfigError>(!c.train.max_steps || !c.train.epochs, c.where("train.epochs"), ": train.max_steps is set too; give one of them");
  check<ConfigError>(!c.train.max_steps || c.optimizer.warmup_steps <= *c.train.max_steps, c.where("optimizer.warmup_steps"), ": found ",
                     c.optimizer.warmup_steps, ", expected at most train.max_steps, ", c.train.max_steps.value_or(0));
  check<ConfigError>(c.train.eval_every == 0 || !c.data.eval.empty(), c.where("train.eval_every"), ": there is no data.eval to evaluate on");
  return c;
}

std::string dump_run_config(RunConfig config, bool with_help) { return dump_fields(Fields::of(config), with_help); }

std::string describe_run_config() {
  RunConfig config;
  return describe_fields(Fields::of(config));
}

}  // namespace temper
