#include "temper/train/run/run_inputs.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "temper/base/config/yaml.h"
#include "temper/models/files/file_digests.h"
#include "temper/models/files/load.h"
#include "temper/text/chat/template_date.h"
#include "temper/text/jinja/template.h"
#include "temper/train/run/checkpoint.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

using Inputs = std::vector<std::pair<std::string, std::string>>;

// Sections that name no input, or where something is written.
constexpr std::array kPassedOver{"output_dir", "resume", "metrics", "rollout", "mesh", "roles"};

constexpr const char* kNothing = "no such file";

std::string digests_of(const std::string& path) {
  try {
    const std::string found = models::resolve_model_path(path);
    return fs::exists(found) ? models::file_digests(found) : kNothing;
  } catch (const std::exception&) {
    return kNothing;
  }
}

void each_text(const YamlNode& node, const std::string& key, const VisitInput& visit) {
  if (node.kind == YamlNode::Kind::kScalar && !node.text.empty()) visit(key, node.text);
  for (const YamlNode& item : node.items) each_text(item, key, visit);
  for (const YamlNode::Entry& entry : node.entries)
    each_text(entry.value, str(key, ".", entry.key), visit);
}

std::string checkpoint_of(const RunConfig& config) {
  if (config.resume == "never") return "none";
  if (config.resume != "auto") return digests_of(config.resume + "/state.json");
  const std::vector<std::string> all = Checkpoints(config.output_dir, 1).all();
  return all.empty() ? "none" : fs::path(all.front()).filename().string();
}

// The checkpoints from which the run may go on, in the order in which they are tried.
std::vector<std::string> resumed_from(const RunConfig& config) {
  if (config.resume == "never") return {};
  if (config.resume == "auto") return Checkpoints(config.output_dir, 1).all();
  return {config.resume};
}

}  // namespace

bool has_earlier_rules(const RunConfig& config) {
  for (const std::string& directory : resumed_from(config)) {
    try {
      if (!Checkpoints::is_set_aside(directory)) return Checkpoints::has_earlier_rules(directory);
    } catch (const DataError&) {  // damaged: the run goes on from one before
    }
  }
  return false;
}

std::string begin_of_run(const RunConfig& config) {
  for (const std::string& directory : resumed_from(config)) {
    try {
      const std::string begun = Checkpoints::begin_of(directory);
      if (!begun.empty()) return begun;
    } catch (const DataError&) {  // damaged: the run goes on from one before
    }
  }
  return to_date_text(jinja::local_time());
}

void each_named_input(RunConfig& config, const VisitInput& visit) {
  const YamlNode tree = parse_yaml(dump_run_config(config), "this run");
  for (const YamlNode::Entry& entry : tree.entries)
    if (std::find(kPassedOver.begin(), kPassedOver.end(), entry.key) == kPassedOver.end())
      each_text(entry.value, entry.key, visit);
}

Inputs run_inputs(RunConfig& config, bool trains) {
  Inputs inputs;
  each_named_input(config, [&](const std::string& key, const std::string& text) {
    if (trains || !key.starts_with("data."))
      inputs.emplace_back(str(key, " (", text, ")"), digests_of(text));
  });
  if (trains) inputs.emplace_back("checkpoint in output_dir", checkpoint_of(config));
  return inputs;
}

}  // namespace temper::train
