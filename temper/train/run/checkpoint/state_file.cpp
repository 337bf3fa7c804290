#include "temper/train/run/checkpoint/state_file.h"

#include <ATen/Parallel.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "temper/base/config/config.h"
#include "temper/base/config/yaml.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/models/files/file_digests.h"
#include "temper/text/chat/template_date.h"
#include "temper/train/run/checkpoint/checkpoint.h"

namespace temper::train {
namespace fs = std::filesystem;

namespace {

constexpr const char* kFiles = "files";  // name -> {bytes, hash}
constexpr const char* kHash = "hash";    // of all other keys
constexpr size_t kLargestState = size_t{64} << 20;

Json hashes_in(const std::string& directory, int threads) {
  Json files = Json::object();
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().extension() == ".safetensors")
      files[entry.path().filename().string()] = {
          {"bytes", entry.file_size()},
          {"hash", models::content_hash(entry.path().string(), threads)}};
  return files;
}

}  // namespace

Json read_state(const std::string& directory) {
  check<DataError>(fs::exists(directory + "/state.json"), directory,
                   ": not a checkpoint: it has no state.json", Checkpoints::newest_hint(directory));
  Json state = read_json_file(directory + "/state.json", kLargestState);
  const std::string where = directory + "/state.json";
  check<DataError>(state.is_object() && state.contains("step") &&
                       state["step"].is_number_integer() && state["step"].get<int64_t>() >= 0 &&
                       std::to_string(state["step"].get<int64_t>()).size() <= kLongestStep,
                   where, ": `step` is missing, or not a whole number of at least 0");
  check<DataError>(!state.contains(kComplete) || state[kComplete].is_boolean(), where,
                   ": `complete` must be true or false");
  if (!state.contains(kHash)) return state;
  const Json hash = state[kHash];
  state.erase(kHash);
  check<DataError>(
      hash == models::content_hash_of(state.dump()), where,
      ": does not match its hash: it is damaged, or was edited; after an intended edit "
      "remove its key `hash`");
  return state;
}

void write_state(const std::string& directory, Json state) {
  state.erase(kHash);
  state[kHash] = models::content_hash_of(state.dump());
  write_file_atomic(directory + "/state.json", state.dump(2) + "\n");
}

void write_state_with_hashes(const std::string& directory, Json state, int threads) {
  state[kFiles] = hashes_in(directory, threads);
  write_state(directory, std::move(state));
}

void mark_state(const std::string& directory, const char* key) {
  Json state = read_json_file(directory + "/state.json", kLargestState);
  state[key] = true;
  write_state(directory, std::move(state));
}

bool Checkpoints::is_set_aside(const std::string& directory) {
  return read_state(directory).value(kSetAside, Json()) == true;
}

std::string Checkpoints::begin_of(const std::string& directory) {
  const Json begun = read_state(directory).value(kBegun, Json());
  if (!begun.is_string()) return "";
  try {
    return to_date_text(parse_date(begun.get<std::string>(), directory + "/state.json: begun"));
  } catch (const ConfigError& e) {
    throw DataError(e.what());
  }
}

bool Checkpoints::has_earlier_rules(const std::string& directory) {
  return !read_state(directory).contains(kRowRules);
}

Json Checkpoints::verb_of(const std::string& directory) {
  return read_state(directory).value("verb", Json());
}

std::string Checkpoints::optimizer_of(const std::string& directory) {
  const Json name = read_state(directory).value(kOptimizer, Json());
  if (name.is_string()) return name.get<std::string>();
  // An earlier version's.
  const fs::path config = fs::path(directory) / "../../config.yaml";
  if (!fs::exists(config)) return "";
  const YamlNode settings = parse_yaml(read_file(config, size_t{1} << 20), config.string());
  const YamlNode* written = find_key(settings, "optimizer.name");
  return written ? written->text : "";
}

std::string Checkpoints::run_of(const std::string& directory) {
  const Json run = read_state(directory).value(kRun, Json());
  return run.is_string() ? run.get<std::string>() : "";
}

bool Checkpoints::check_files(const std::string& directory) {
  const Json state = read_state(directory);
  if (!state.contains(kFiles)) return false;
  check<DataError>(state[kFiles].is_object(), directory, "/state.json: `files` is no map");
  for (const auto& [name, written] : state[kFiles].items()) {
    const std::string path = directory + "/" + name;
    std::error_code none;
    const uint64_t bytes = fs::file_size(path, none);
    check<DataError>(!none, path, ": the file is missing; the checkpoint is damaged");
    check<DataError>(written.is_object() && written.value("bytes", Json()) == bytes, path, ": has ",
                     bytes, " bytes, not as many as were written; the checkpoint is damaged");
    check<DataError>(
        written.value(kHash, Json()) == models::content_hash(path, at::get_num_threads()), path,
        ": its hash is not that of the file that was written; the checkpoint is "
        "damaged");
  }
  return true;
}

bool Checkpoints::is_record_alone(const std::string& directory) {
  return read_state(directory).value(kRecordAlone, Json()) == true;
}

Checkpoint Checkpoints::record(const std::string& directory) {
  Checkpoint c{directory, 0, false, read_state(directory), {}};
  c.step = c.values["step"].get<int64_t>();
  c.complete = c.values.value(kComplete, false);
  return c;
}

}  // namespace temper::train
