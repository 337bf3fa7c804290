#include "temper/train/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/generate/config.h"
#include "temper/metrics/sink.h"
#include "temper/models/device.h"
#include "temper/text/chat/template_date.h"
#include "temper/train/evaluation.h"
#include "temper/train/group_means.h"
#include "temper/train/optimizers/update_rule.h"
#include "temper/train/run/memory_limit.h"
#include "temper/train/run/reward_evaluation.h"

namespace temper {

template <>
inline constexpr std::array enum_names<train::TrainSection::Recompute> = {"none", "blocks"};
template <>
inline constexpr std::array enum_names<train::TrainSection::Offload> = {"none", "activations",
                                                                        "optimizer", "all"};
template <>
inline constexpr std::array enum_names<train::Goal> = {"auto", "minimize", "maximize"};

void config_detail::Traits<train::ProfileSteps>::read(const YamlNode& node, const std::string& path,
                                                      const Rule&, train::ProfileSteps& value) {
  value = {};
  if (node.kind == YamlNode::Kind::kNull) return;
  if (node.kind != YamlNode::Kind::kMap) return read_value(node, path, at_least(0), value.steps);
  for (const YamlNode::Entry& entry : node.entries) {
    const std::string key = path + "." + entry.key;
    if (entry.key == "first" && entry.value.kind != YamlNode::Kind::kNull)
      read_value(entry.value, key, at_least(1), value.first.emplace());
    else if (entry.key == "steps")
      read_value(entry.value, key, at_least(1), value.steps);
    else if (entry.key != "first")
      fail(node, path, "a number of steps, or {first: STEP, steps: N}");
  }
  if (value.steps == 0) fail(node, path, "a number of steps, or {first: STEP, steps: N}");
}

YamlNode config_detail::Traits<train::ProfileSteps>::write(train::ProfileSteps& value) {
  if (!value.first) return write_value(value.steps);
  YamlNode map = YamlNode::map();
  map.entries.push_back({"first", {}, write_value(*value.first), {}});
  map.entries.push_back({"steps", {}, write_value(value.steps), {}});
  return map;
}

}  // namespace temper

namespace temper::train {

void EarlyStoppingSection::fields(Fields& f) {
  f.add("metric", metric,
        "evaluation metric that decides, such as eval/loss; null: no early stopping");
  f.add("patience", patience, "evaluations without an improvement before the run ends",
        at_least(1));
  f.add("min_delta", min_delta, "minimum change that counts as an improvement", at_least(0));
  f.add("goal", goal, "whether the metric should fall or rise; auto: by its name");
}

void KeepBestSection::fields(Fields& f) {
  f.add("metric", metric,
        "evaluation metric that selects the weights of final/; null: the last weights");
  f.add("goal", goal, "whether the metric should fall or rise; auto: by its name");
}

void TrainSection::fields(Fields& f) {
  f.add("max_steps", max_steps, "number of optimizer updates; null: given by train.epochs",
        at_least(1));
  f.add("epochs", epochs, "passes over the data if max_steps is null; null: 1", above(0));
  f.add("batch_size", batch_size,
        "rows per step, over all ranks and micro-batches; grpo and ppo have instead "
        "rl.prompts_per_rollout x rl.group_size completions in rl.minibatches updates",
        at_least(1));
  f.add("micro_batch_tokens", micro_batch_tokens,
        "maximum number of tokens per forward pass (micro-batch); a longer row is a pass by itself",
        at_least(1));
  f.add("recompute", recompute,
        "activation checkpointing; blocks: recompute each block in the backward pass, to save "
        "memory");
  f.add("offload", offload,
        "what leaves memory for files that are gone after the run: the inputs of blocks, which "
        "need recompute: blocks, the optimizer's state, or both; the same bits",
        without_effect());
  f.add("offload_dir", offload_dir,
        "existing directory, on a fast local disk, of these files; null: output_dir",
        without_effect());
  f.add("eval_every", eval_every, "steps between evaluations; 0: only after the last step",
        at_least(0));
  f.add("eval_at_start", eval_at_start, "also evaluate before the first step");
  f.add("eval_samples", eval_samples,
        "sft: rows of each evaluation set whose greedy completion is printed and reported; 0: none",
        at_least(0));
  f.add("eval_sample_tokens", eval_sample_tokens, "maximum number of tokens of such a completion",
        at_least(1));
  f.add("eval_rewards", eval_rewards,
        "rewards, as the entries of `rewards`, of completions of data.eval's prompts in each "
        "evaluation, sampled as `rollout` says; under grpo and ppo in place of `rewards`",
        one_or_list());
  f.add("eval_completions", eval_completions, "completions of each prompt for train.eval_rewards",
        between(1, 1024));
  f.add("save_every", save_every,
        "steps between checkpoints; 0: only at the end and when interrupted",
        without_effect(at_least(0)));
  f.add("save_minutes", save_minutes,
        "minutes between checkpoints, in addition to save_every; 0: none",
        without_effect(at_least(0)));
  f.add("save_in_background", save_in_background,
        "a thread writes checkpoints from a copy of the trained weights and the optimizer's state "
        "while training continues; null: where the copy fits into memory",
        without_effect());
  f.add("keep_checkpoints", keep_checkpoints, "number of checkpoints kept on disk",
        without_effect(at_least(1)));
  f.add("keep_final_checkpoint", keep_final_checkpoint,
        "false: once final/ is written the weights and the optimizer's state in checkpoints/ are "
        "removed, and a small state.json stays there as the record that the run is complete; it "
        "then cannot go on to more steps",
        without_effect());
  f.add("early_stopping", early_stopping, "ends the run when an evaluation metric stops improving");
  f.add("keep_best", keep_best, "leaves the weights of the best evaluation in final/");
  f.add("freeze", freeze, "names of parameters that are not trained; * matches any characters");
  f.add("neftune_alpha", neftune_alpha,
        "NEFTune: scale of the noise on embeddings in training passes; 0: none", at_least(0));
  f.add("z_loss", z_loss,
        "z-loss: coefficient of the mean squared log-sum-exp of the logits at supervised tokens; "
        "0: none",
        at_least(0));
  f.add("router_aux_loss", router_aux_loss,
        "mixture of experts: coefficient of the load-balancing loss over the step's tokens; null: "
        "none",
        at_least(0));
  f.add("profile", profile,
        "number of steps to profile, from the first one of this process, or {first: STEP, steps: "
        "N}; written to trace.json (Perfetto); 0: off",
        without_effect());
  f.add("memory_limit", memory_limit,
        "maximum resident memory of a rank, in bytes or as 12GB or 12GiB: a run that is planned to "
        "take more does not start, one that takes more ends with a checkpoint; null: none",
        without_effect());
  f.add("max_inflight", max_inflight,
        "reinforcement learning: maximum length of each queue: rollout batches sampled ahead "
        "(rl.max_staleness), groups of completions that wait for rewards, or for ranks with the "
        "role reference; null: each queue's own limit",
        at_least(1));
}

void RunConfig::fields(Fields& f) {
  f.add("output_dir", output_dir, "directory for everything that the run writes; required",
        without_effect());
  f.add("seed", seed, "random seed of the run", at_least(0));
  f.add("resume", resume,
        "auto (from the newest checkpoint), never (what an earlier run left is moved to "
        "OUTPUT_DIR.old-N), or a checkpoint's path",
        without_effect());
  f.add("verb", verb, "the training verb; Temper writes it to the resolved config");
  f.add("model", model, "the model to train");
  f.add("adapter", adapter, "a low-rank adapter (LoRA) that is trained instead of all weights");
  f.add("data", data, "training and evaluation rows, and how they are read");
  f.add("train", train, "length of the run, batches, evaluation and checkpoints");
  f.add("optimizer", optimizer, "optimizer and learning-rate schedule");
  f.add("metrics", metrics, "where metrics are recorded", without_effect());
  std::string product;
  for (const dist::Axis& axis : dist::axes())
    if (!axis.unusual()) product += str(product.empty() ? "" : " x ", axis.name);
  f.add("mesh", mesh, "parallelism; " + product + " is the number of ranks that train",
        without_effect());
  f.add("roles", roles, "ranks that do not train: they sample, run the reference model or judge");
  f.add(
      "defaulted", defaulted,
      "written by Temper to config.yaml: keys whose values are defaults of the chosen algorithm or "
      "optimizer; with another one they change",
      without_effect(internal()));
}

namespace {

void erase_key(YamlNode& map, std::string_view dotted) {
  const size_t dot = dotted.find('.');
  const std::string_view head = dotted.substr(0, dot);
  if (dot == std::string_view::npos)
    std::erase_if(map.entries, [&](const YamlNode::Entry& entry) { return entry.key == head; });
  else if (YamlNode* below = map.find(head))
    erase_key(*below, dotted.substr(dot + 1));
}

}  // namespace

std::vector<std::string> RunConfig::evaluated_metrics() const {
  return with_groups({"loss", "supervised_tokens", "rows"}, {"loss"});
}

std::vector<std::string> RunConfig::with_groups(std::vector<std::string> metrics,
                                                const std::vector<std::string>& grouped) const {
  if (data.balance.groups())
    for (const std::string& metric : grouped) metrics.push_back(group_metric(metric, "*"));
  return metrics;
}

// Drops the values that an earlier run's config.yaml recorded as defaults of its algorithm or
// optimizer, so that those that this run chooses set their own.
void RunConfig::prepare() {
  const YamlNode* found = find_key(written, "defaulted");
  if (!found) return;
  const YamlNode chosen = *found;
  for (const YamlNode::Entry& entry : chosen.entries) {
    const YamlNode* value = find_key(written, entry.key);
    // Only as the same file has it: a later file or override is an explicit setting.
    if (value && value->origin.source == entry.origin.source &&
        on_one_line(*value) == entry.value.text)
      erase_key(written, entry.key);
  }
  erase_key(written, "defaulted");
}

models::DeviceChoice RunConfig::device_choice() const {
  return {model.device, model.backend, where("model.device"), where("model.backend")};
}

std::string RunConfig::where(std::string_view key) const {
  const YamlNode* node = find_key(written, key);
  return node ? str(node->origin.str(), ": ", key) : std::string(key);
}

void RunConfig::fail(std::string_view key, const std::string& message) const {
  throw ConfigError(str(where(key), ": ", message));
}

std::vector<MissingKey> RunConfig::missing() const {
  std::vector<MissingKey> keys;
  if (output_dir.empty()) keys.push_back({"output_dir", "directory for everything the run writes"});
  if (model.path.empty())
    keys.push_back(
        {"model.path", "directory of a Hugging Face model, or its id in the local cache"});
  if (data.train.empty())
    keys.push_back({"data.train", "a file of rows, or a list of {path, weight, name}"});
  return keys;
}

void RunConfig::resolve(std::string_view verb_name) {
  require(!verb || *verb == verb_name, "verb", "the config is for ", verb.value_or(""),
          ", the command is ", verb_name);
  if (resolved_) return;
  verb = verb_name;
  complete();
  std::string message;
  for (const MissingKey& m : missing())
    message += str(message.empty() ? "" : "; ", where(m.key), " is required: ", m.expected);
  if (!message.empty()) throw ConfigError(message);
  validate();
  resolved_ = true;
}

// GPUs multiply bfloat16 many times as fast as float32.
void RunConfig::complete_numbers() {
  if (was_set("model.dtype") || was_set("model.storage") || was_set("model.arithmetic")) return;
  if (models::is_cpu(device_choice())) return;
  model.dtype = models::ModelSection::Dtype::kBfloat16;
  model.arithmetic = ops::Arithmetic::kFast;
  defaulted["model.dtype"] = "bfloat16";
  defaulted["model.arithmetic"] = "fast";
}

void RunConfig::complete() {
  if (!has_adapter()) warn_of_adapter();
  if (adapter.path && !was_set("adapter.method"))
    adapter.method = models::AdapterSection::Method::kLora;
  complete_numbers();
  complete_optimizer();
  complete_eval_rewards();
}

void RunConfig::complete_eval_rewards() {
  rewards::note_written(find_key(written, "train.eval_rewards"), train.eval_rewards);
  if (train.eval_rewards.empty() && train.eval_completions != TrainSection().eval_completions)
    warnings.push_back(
        str(where("train.eval_completions"), " has no effect without train.eval_rewards"));
}

void RunConfig::warn_of_idle_rollout() {
  if (!train.eval_rewards.empty() || !was_set("rollout")) return;
  // A resolved config has every key: one with its default says nothing.
  const auto text = [](generate::RolloutSection section) {
    return dump_yaml(write_fields(Fields::of(section)));
  };
  if (text(*sampling()) != text({}))
    warnings.push_back(str(where("rollout"), " has no effect with ", *verb,
                           ", which samples for train.eval_rewards alone"));
}

void RunConfig::warn_of_adapter() {
  // A resolved config has every key: one with its default says nothing.
  const models::AdapterSection standard;
  const auto add = [this](const char* key, bool is_default) {
    if (!is_default)
      warnings.push_back(str(where(str("adapter.", key)),
                             " has no effect: adapter.method is none, so all weights train; lora "
                             "and qlora train an adapter"));
  };
  add("rank", adapter.rank == standard.rank);
  add("alpha", adapter.alpha == standard.alpha);
  add("dropout", adapter.dropout == standard.dropout);
  add("target_modules", adapter.target_modules == standard.target_modules);
  add("rank_pattern", adapter.rank_pattern == standard.rank_pattern);
  add("alpha_pattern", adapter.alpha_pattern == standard.alpha_pattern);
  add("use_rslora", adapter.use_rslora == standard.use_rslora);
  add("use_dora", adapter.use_dora == standard.use_dora);
  add("modules_to_save", adapter.modules_to_save == standard.modules_to_save);
  add("train_tokens", adapter.train_tokens == standard.train_tokens);
  add("loraplus_ratio", adapter.loraplus_ratio == standard.loraplus_ratio);
}

namespace {

void validate_adapter(const RunConfig& c) {
  using Method = models::AdapterSection::Method;
  const models::AdapterSection& a = c.adapter;
  c.require(!a.path || a.method != Method::kNone, "adapter.method",
            "found none, but adapter.path names an adapter");
  c.require(!a.target_modules.empty() || a.method == Method::kNone, "adapter.target_modules",
            "found an empty list, expected all-linear or names of linear layers");
  const bool all = std::count(a.target_modules.begin(), a.target_modules.end(), "all-linear") > 0;
  c.require(!all || a.target_modules.size() == 1, "adapter.target_modules",
            "found all-linear among other names; expected it alone, or names of linear layers");
  for (const models::LayerPattern& p : a.rank_pattern.list)
    c.require(p.value == std::floor(p.value) && p.value <= INT32_MAX,
              str("adapter.rank_pattern.", p.pattern), "found ", p.value,
              ", expected a positive integer");
}

constexpr int64_t kMostRows = 1'000'000;  // most rows of a step: they are in memory together

bool has_evaluation(const RunConfig& c) {
  return !c.data.eval.empty() || c.data.validation_fraction > 0;
}
constexpr const char* kNothingToEvaluate =
    "there is neither data.eval nor data.validation_fraction to evaluate on";

constexpr std::string_view kEval = "eval/";

// The names that rows of metrics have of an evaluation (evaluation.h).
std::vector<std::string> evaluated_names(const RunConfig& c) {
  std::vector<std::string> names, sets = set_names(data::evaluation_sources(c.data, 0));
  if (sets.size() < 2) sets.clear();
  std::vector<std::string> metrics = c.evaluated_metrics();
  for (std::string& metric : rewarded_metrics(c.train)) metrics.push_back(std::move(metric));
  for (const std::string& metric : metrics) {
    names.push_back(str(kEval, metric));
    for (const std::string& set : sets) names.push_back(str(kEval, set, "/", metric));
  }
  return names;
}

// A metric that ends the run or chooses its weights.
void check_evaluated(const RunConfig& c, const char* key,
                     const std::optional<std::string>& metric) {
  if (!metric) return;
  c.require(has_evaluation(c), key, kNothingToEvaluate);
  const std::string meant = metric->starts_with("eval_") ? metric->substr(5) : *metric;
  c.require(metric->starts_with(kEval), key, "found ", *metric,
            ", expected an evaluation metric, such as eval/", meant);
  const std::vector<std::string> names = evaluated_names(c);
  const auto is_it = [&](const std::string& name) {
    return name.ends_with('*') ? metric->starts_with(name.substr(0, name.size() - 1))
                               : *metric == name;
  };
  if (std::any_of(names.begin(), names.end(), is_it)) return;
  // What all have in common makes none alike.
  std::vector<std::string> parts;
  std::string known;
  for (const std::string& name : names) {
    parts.push_back(name.substr(kEval.size()));
    known += (known.empty() ? "" : ", ") + name;
  }
  const std::string near = nearest(metric->substr(kEval.size()), parts);
  c.require(false, key, "found ", *metric, ", which no evaluation of this run has",
            near.empty() ? "; expected one of " + known : str("; did you mean ", kEval, near, "?"));
}

void validate_eval_rewards(const RunConfig& c) {
  if (c.train.eval_rewards.empty()) return;
  const char* key = "train.eval_rewards";
  c.require(has_evaluation(c), key, kNothingToEvaluate);
  c.require(c.sampling(), key, "found rewards, expected none: a reward model completes no prompts");
  const std::string problem = rewards::find_problem(c.train.eval_rewards);
  c.require(problem.empty(), key, problem);
  c.sampling()->validate();
  c.require(c.sampling()->cache_dtype == c.cache_dtype(), "rollout.cache_dtype",
            "found another dtype than float32, in which this verb's policy trains");
}

void validate_train(const RunConfig& c) {
  const TrainSection& t = c.train;
  c.require(!t.max_steps || !t.epochs, "train.epochs",
            "train.max_steps is set too; give one of them");
  c.require(c.optimizer.warmup_ratio == 0 || c.optimizer.warmup_steps == 0,
            "optimizer.warmup_ratio", "optimizer.warmup_steps is set too; give one of them");
  memory_limit(c);
  const auto named = [](const auto& names, auto value) {
    return names[static_cast<size_t>(value)];
  };
  c.require(!t.offloads_inputs() || t.recompute == TrainSection::Recompute::kBlocks,
            "train.offload", "found ", named(enum_names<TrainSection::Offload>, t.offload),
            " with train.recompute: ", named(enum_names<TrainSection::Recompute>, t.recompute),
            ", expected train.recompute: blocks: without it blocks keep more than their inputs");
  c.require(t.offload != TrainSection::Offload::kNone || !t.offload_dir, "train.offload_dir",
            "train.offload is none, which writes no files; expected activations, optimizer or all");
  c.require(t.batch_size <= kMostRows, "train.batch_size", "found ", t.batch_size,
            ", expected at most ", kMostRows, " rows a step");
  c.require(t.eval_every == 0 || has_evaluation(c), "train.eval_every", kNothingToEvaluate);
  validate_eval_rewards(c);
  check_evaluated(c, "train.early_stopping.metric", t.early_stopping.metric);
  check_evaluated(c, "train.keep_best.metric", t.keep_best.metric);
  std::string with_momentum;
  for (const auto& kind : optimizers().list())
    if (kind.value.momentum) with_momentum += (with_momentum.empty() ? "" : ", ") + kind.name;
  const OptimizerKind& kind = optimizers().find(c.optimizer.name, c.where("optimizer.name"));
  c.require(kind.momentum || c.optimizer.momentum == 0, "optimizer.momentum", "found ",
            c.optimizer.momentum, ", expected 0: ", c.optimizer.name,
            " does not read this key; these optimizers do: ", with_momentum,
            kind.betas ? str("; ", c.optimizer.name, " has betas") : "");
}

}  // namespace

void RunConfig::validate() const {
  if (data.template_date) parse_date(*data.template_date, where("data.template_date"));
  for (const std::string& name : metrics.sinks) sinks().find(name, where("metrics.sinks"));
  validate_adapter(*this);
  validate_train(*this);
  validate_roles();
}

std::string RunConfig::no_rollout_role() const { return "this verb samples nothing"; }
std::string RunConfig::no_reference_role() const { return "this verb has no reference model"; }

void RunConfig::validate_roles() const {
  roles.check_names([this](const char* key) { return where(key); });
  const auto check_role = [this](const char* key, const std::vector<int64_t>& ranks,
                                 const std::string& why) {
    require(ranks.empty() || why.empty(), key, "found ranks of their own for it, and ", why,
            "; leave the key out");
  };
  check_role("roles.rollout", roles.rollout, no_rollout_role());
  check_role("roles.reference", roles.reference, no_reference_role());
  check_role("roles.reward", roles.reward, no_reward_role());
}

std::vector<int> RunConfig::training_ranks(int64_t ranks) const {
  std::vector<int> training = roles.training(ranks, [this](const char* key) { return where(key); });
  mesh.sizes(static_cast<int64_t>(training.size()), where("mesh"), ranks);
  return training;
}

data::LoaderOptions loader_options(const RunConfig& config, int64_t batch_size) {
  data::LoaderOptions options{batch_size, config.data.shuffle, static_cast<uint64_t>(config.seed),
                              std::nullopt};
  if (!config.train.max_steps) options.epochs = config.train.epochs.value_or(1);
  return options;
}

data::LoaderState loader_state(const Json& values, const std::string& where) {
  check<DataError>(values.contains("loader"), where, ": no `loader`");
  return data::LoaderState::from_json(values["loader"], where);
}

int64_t pass_tokens(const RunConfig& config) {
  return config.data.packing ? config.train.micro_batch_tokens : 0;
}

void read_run_config(RunConfig& config, std::span<const std::string> arguments,
                     std::string_view verb, std::span<const std::string> elsewhere) {
  config.written = read_config_arguments(arguments, Fields::of(config));
  const auto is_elsewhere = [&](const YamlNode::Entry& entry, const std::string& key) {
    if (std::find(elsewhere.begin(), elsewhere.end(), key) == elsewhere.end()) return false;
    config.warnings.push_back(str(entry.origin.str(), ": `", key, "` is not used by ", verb));
    return true;
  };
  std::erase_if(config.written.entries,
                [&](const YamlNode::Entry& entry) { return is_elsewhere(entry, entry.key); });
  for (YamlNode::Entry& section : config.written.entries)
    std::erase_if(section.value.entries, [&](const YamlNode::Entry& entry) {
      return is_elsewhere(entry, section.key + "." + entry.key);
    });
  config.prepare();
  read_fields(config.written, "", Fields::of(config));
  config.resolve(verb);
}

std::string dump_run_config(RunConfig& config, bool with_help) {
  return dump_yaml(write_fields(Fields::of(config), with_help));
}

std::string describe_run_config(RunConfig& config) { return describe_fields(Fields::of(config)); }

}  // namespace temper::train
