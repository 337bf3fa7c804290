#include "temper/train/run/run_inputs.h"

#include <filesystem>

#include "temper/models/files/file_digests.h"
#include "temper/text/chat/template_date.h"
#include "temper/text/jinja/template.h"
#include "temper/train/run/checkpoint/checkpoint.h"
#include "temper/train/run/input_files.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

using Inputs = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kNothing = "no such file";

std::string digests_of(const std::string& text, InputFiles kind) {
  try {
    std::string digests;
    for (const std::string& path : named_paths(text, kind))
      if (fs::exists(path)) digests += models::file_digests(path);
    return digests.empty() ? kNothing : digests;
  } catch (const std::exception&) {
    return kNothing;
  }
}

std::string checkpoint_of(const RunConfig& config) {
  if (config.resume == "never") return "none";
  if (config.resume != "auto") return digests_of(config.resume + "/state.json", InputFiles::kOther);
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

Inputs run_inputs(RunConfig& config, bool trains) {
  Inputs inputs;
  each_input(config, [&](const std::string& key, const std::string& text, InputFiles kind) {
    if (trains || !key.starts_with("data."))
      inputs.emplace_back(str(key, " (", text, ")"), digests_of(text, kind));
  });
  if (trains) inputs.emplace_back("checkpoint in output_dir", checkpoint_of(config));
  return inputs;
}

}  // namespace temper::train
