#include "temper/models/files/directory.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/hub_cache.h"
#include "temper/base/json.h"
#include "temper/io/gguf.h"
#include "temper/io/safetensors.h"
#include "temper/io/weight_files.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/checkpoint_tensors.h"
#include "temper/models/files/load.h"
#include "temper/models/model.h"

namespace temper::models {

namespace {

bool has_file(const std::string& directory, const char* name) {
  std::error_code ignored;
  return is_file(directory + "/" + name) ||
         std::filesystem::exists(directory + "/" + name, ignored);
}

// The step of the newest checkpoint of a run's directory; -1: there is none.
int64_t newest_checkpoint(const std::string& run) {
  constexpr std::string_view kStep = "step-";
  int64_t newest = -1;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints", none)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kStep) || !has_file(entry.path(), "state.json")) continue;
    int64_t step = -1;
    std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
    newest = std::max(newest, step);
  }
  return newest;
}

// The part of the hints that models and adapters share: where a run has what it trained.
std::string run_hint(const std::string& path) {
  if (has_file(path, "final/config.json"))
    return "; it is a run's directory: its model is " + path + "/final";
  if (has_file(path, "final/adapter_config.json"))
    return "; it is a run's directory: its adapter is " + path + "/final";
  if (has_file(path, "state.json"))
    return "; it is a run's checkpoint: resume takes it, and what the run trained is in final/ of "
           "its directory";
  if (const int64_t step = newest_checkpoint(path); step >= 0)
    return temper::str(
        "; it is the directory of a run that has not ended: its newest checkpoint is of "
        "step ",
        step, "; the run's command goes on from there, and with train.max_steps=", step,
        " writes the model of that step to ", path, "/final");
  return {};
}

// A hint for a path to a file: the file's directory, where that has `config`.
std::string directory_hint(const std::string& path, const char* config) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? "." : parent.string();
  return has_file(directory, config) ? "; give its directory, " + directory : "";
}

// A hint for a directory whose model is a GGUF file: that one, or the first of its parts.
std::string gguf_hint(const std::string& path) {
  std::error_code ignored;
  std::string first;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
    if (const std::string name = entry.path().string();
        is_gguf_file(name) && (first.empty() || name < first))
      first = name;
  return first.empty() ? "" : "; it holds a GGUF file: name the file, " + first;
}

// A hint for an address where a path is expected.
std::string address_hint(const std::string& path) {
  constexpr std::string_view kHub = "https://huggingface.co/";
  if (path.find("://") == path.npos) return {};
  std::string id = path.starts_with(kHub) ? path.substr(kHub.size()) : "";
  const size_t owner = id.find('/');
  id = id.substr(0, owner == id.npos ? owner : id.find('/', owner + 1));
  if (!is_hub_id(id))
    return "; it is an address, and models are read from this machine: `temper fetch ORG/NAME` "
           "downloads one of the hub, which ORG/NAME then names";
  return temper::str("; it is an address: `", hub_fetch_command(HubKind::kModel, id),
                     "` downloads the model, which ", id, " then names");
}

}  // namespace

std::string no_model_hint(const std::string& path) {
  if (const std::string address = address_hint(path); !address.empty()) return address;
  if (has_file(path, "adapter_config.json"))
    return "; it is an adapter: name its base model, and " + path +
           " as the adapter (adapter.path, --adapter), or merge both by `temper export`";
  if (const std::string file = gguf_hint(path); !file.empty()) return file;
  const std::string file = directory_hint(path, "config.json");
  return file.empty() ? run_hint(path) : file;
}

std::string no_adapter_hint(const std::string& path) {
  if (const std::string address = address_hint(path); !address.empty()) return address;
  if (has_file(path, "config.json")) return "; it is a model: model.path and --model take it";
  const std::string file = directory_hint(path, "adapter_config.json");
  return file.empty() ? run_hint(path) : file;
}

std::string named_model(const std::string& path, const std::string& where, bool may_be_adapter) {
  const std::string directory = resolve_model_path(path);
  check<ConfigError>(has_file(directory, "config.json") ||
                         (may_be_adapter && has_file(directory, "adapter_config.json")),
                     where, ": no model at ", directory,
                     "; expected a directory with config.json or a .gguf file",
                     no_model_hint(directory));
  return directory;
}

namespace {

// A string of adapter_config.json; nullopt: there is no such file, or it lacks the key.
std::optional<std::string> adapter_text(const std::string& directory, const char* key) {
  const std::string path = directory + "/adapter_config.json";
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return {};
  const Json json = read_json_file(path, size_t{16} << 20);
  const Json text = json.is_object() ? json.value(key, Json()) : Json();
  return text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
}

}  // namespace

std::optional<std::string> adapter_base(const std::string& directory) {
  return adapter_text(directory, "base_model_name_or_path");
}

std::optional<std::string> find_adapter_base(const std::string& directory) {
  const std::optional<std::string> base = adapter_base(directory);
  if (!base) return {};
  return resolve_model_path(*base, adapter_text(directory, "revision").value_or(""));
}

std::set<ops::WeightFormat> held_formats(const std::string& directory) {
  return held_formats(open_checkpoint(directory).tensors);
}

std::map<std::string, ops::WeightFormat> held_matrices(const std::string& directory) {
  CheckpointTensors checkpoint = open_checkpoint(directory);
  std::map<std::string, ops::WeightFormat> held;
  make_model(checkpoint.config)->each_parameter([&](const std::string& name, nn::Parameter&) {
    auto found = checkpoint.tensors.find(name);
    if (found == checkpoint.tensors.end() && name.starts_with("model."))
      found = checkpoint.tensors.find(name.substr(6));
    if (found == checkpoint.tensors.end()) return;
    if (const CodedMatrix* matrix = coded_matrix(found->second)) held[name] = matrix->format();
  });
  return held;
}

bool has_scalar_head(const std::string& directory, const std::string& adapter) {
  if (!is_gguf_file(directory) && read_weights(directory).contains("score.weight")) return true;
  const std::string weights = adapter + "/adapter_model.safetensors";
  if (adapter.empty() || !std::filesystem::exists(weights)) return false;
  const TensorMap tensors = read_safetensors(weights);
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const auto& entry) { return entry.first.ends_with(".score.weight"); });
}

bool BaseFormat::is_rounded() const {
  const auto format = ops::format_named(storage);
  return format && ops::rounds_weights(*format);
}

std::optional<BaseFormat> adapter_base_format(const std::string& directory) {
  const std::string path = directory + "/adapter_model.safetensors";
  if (!std::filesystem::exists(path)) return {};
  const SafetensorsMetadata said = read_safetensors_metadata(path);
  const auto dtype = said.find(kBaseDtype), storage = said.find(kBaseStorage);
  if (dtype == said.end() || storage == said.end()) return {};
  if (!storage_named(storage->second) ||
      (dtype->second != "float32" && dtype->second != "bfloat16"))
    return {};
  return BaseFormat{dtype->second, storage->second};
}

Storage storage_of(const BaseFormat& format) {
  return frozen_storage(format.dtype == "bfloat16", storage_named(format.storage));
}

}  // namespace temper::models
