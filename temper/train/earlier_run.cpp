#include "temper/train/earlier_run.h"

#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/ops/backend.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

// The backend that the text of a key model.backend stands for.
std::string named_backend(const YamlNode& written) {
  try {
    return written.text == "auto" ? ops::default_processor_backend().name() : written.text;
  } catch (const ConfigError&) {  // TEMPER_BACKEND: what computes with it says what is wrong
    return written.text;
  }
}

}  // namespace

std::string changed_settings(RunConfig& config) {
  const std::string file = config.output_dir + "/config.yaml";
  if (!fs::exists(file)) return {};
  YamlNode before = parse_yaml(read_file(file, size_t{1} << 20), file);
  const YamlNode now = parse_yaml(dump_run_config(config), "this run");
  YamlNode* model = before.find("model");
  YamlNode* earlier = model ? model->find("backend") : nullptr;
  const YamlNode* backend = find_key(now, "model.backend");
  if (earlier && backend && named_backend(*earlier) == named_backend(*backend)) *earlier = *backend;
  std::string changes;
  for (const std::string& change : changed_keys(before, now))
    if (!change.starts_with("resume:") && !change.starts_with("defaulted"))
      changes += (changes.empty() ? "" : ", ") + change;
  return changes;
}

void check_separate_output(const RunConfig& config) {
  const auto check_apart = [&](const std::string& directory, const char* key) {
    std::error_code none;
    config.require(!fs::equivalent(config.output_dir, directory, none), "output_dir", "found ",
                   config.output_dir, ", the directory of ", key,
                   "; expected another one: the files of the run would lie among those of the "
                   "model");
  };
  check_apart(config.model.path, "model.path");
  if (config.adapter.path) check_apart(*config.adapter.path, "adapter.path");
}

}  // namespace temper::train
