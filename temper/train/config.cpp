#include "temper/train/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/generate/config.h"
#include "temper/models/device.h"
#include "temper/rewards/config.h"
#include "temper/train/group_means.h"

namespace temper::train {

void RunConfig::fields(Fields& f) {
  f.add("output_dir", output_dir, "directory for everything that the run writes; required",
        outside_digest());
  f.add("seed", seed, "random seed of the run", at_least(0));
  f.add("resume", resume,
        "auto (from the newest checkpoint), never (what an earlier run left is moved to "
        "OUTPUT_DIR.old-N), or a checkpoint's path",
        outside_digest());
  f.add("verb", verb, "the training verb; Temper writes it to the resolved config");
  f.add("model", model, "the model to train");
  f.add("adapter", adapter, "a low-rank adapter (LoRA) that is trained instead of all weights");
  f.add("data", data, "training and evaluation rows, and how they are read");
  f.add("train", train, "length of the run, batches, evaluation and checkpoints");
  f.add("optimizer", optimizer, "optimizer and learning-rate schedule");
  f.add("metrics", metrics, "where metrics are recorded", outside_digest());
  std::string product;
  for (const dist::Axis& axis : dist::axes())
    if (!axis.unusual()) product += str(product.empty() ? "" : " x ", axis.name);
  f.add("mesh", mesh, "parallelism; " + product + " is the number of ranks that train",
        outside_digest());
  f.add("roles", roles, "ranks that do not train: they sample, run the reference model or judge");
  f.add(
      "defaulted", defaulted,
      "written by Temper to config.yaml: keys whose values are defaults of the chosen algorithm or "
      "optimizer; with another one they change",
      outside_digest(internal()));
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
