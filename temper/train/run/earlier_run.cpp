#include "temper/train/run/earlier_run.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/read/row_set.h"
#include "temper/metrics/report/report.h"
#include "temper/models/device.h"
#include "temper/models/files/new_tokens.h"
#include "temper/train/run/input_files.h"
#include "temper/train/run/run_lock.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

// The device and backend that model.device and model.backend stand for on this machine.
models::DeviceChoice choice_of(const YamlNode* model) {
  models::DeviceChoice choice;
  for (const auto& [key, text] :
       {std::pair{"device", &choice.device}, {"backend", &choice.backend}})
    if (const YamlNode* written = model ? model->find(key) : nullptr) *text = written->text;
  return choice;
}
bool is_same_device(const models::DeviceChoice& a, const models::DeviceChoice& b) {
  try {
    return models::device_for(a) == models::device_for(b);
  } catch (const ConfigError&) {  // loading the model reports the error
    return a.device == b.device;
  }
}
bool is_same_backend(const models::DeviceChoice& a, const models::DeviceChoice& b) {
  try {
    return &models::backend_for(a) == &models::backend_for(b);
  } catch (const ConfigError&) {
    return a.backend == b.backend;
  }
}

// "KEY: before -> after" of a key that an earlier version did not know, at its default.
bool is_new_key(const RunConfig& config, const std::string& change) {
  return change.find(": (not set) -> ") != change.npos &&
         !config.was_set(change.substr(0, change.find(':')));
}

// What a run writes into output_dir; the entries of kRunModels are weights that it trained.
constexpr std::array kRunModels{"final", "critic", "best", "best-critic"};
constexpr std::array kRunFiles{"config.yaml",  "report.json", "report.html",  "metrics.jsonl",
                               "metrics.csv",  "eval.csv",    "metrics.prom", "manifest.jsonl",
                               "trace.json",   "tensorboard", "wandb",        "rollouts",
                               "eval_samples", "weights",     "fork"};

// The weight that earlier versions wrote for sources without one.
bool is_default_weight(const std::string& change) {
  return change.starts_with("data.") && (change.ends_with(".weight: 1.0 -> (not set)") ||
                                         change.ends_with(".weight: 1.0 -> null"));
}

// Directories of output_dir that the run replaces.
constexpr std::array kReplaced{"final", "critic", "checkpoints"};

// Whether a path is the directory, or lies below it. Both exist.
bool lies_in(const std::string& path, const fs::path& directory) {
  std::error_code none;
  for (fs::path place = fs::canonical(path, none); !none && place.has_relative_path();
       place = place.parent_path())
    if (fs::equivalent(place, directory, none)) return true;
  return false;
}

// Whether a run has written into the directory.
bool has_sign_of_run(const fs::path& directory) {
  if (!RunLock::run_in(directory.string()).empty()) return true;
  std::error_code none;
  const std::string report = (directory / "report.json").string();
  if (!fs::exists(report, none)) return false;
  try {
    read_report_record(read_file(report, size_t{1} << 30), report);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whether the run goes on from a checkpoint of its own directory: from any, or from the one named.
bool resumes_here(const RunConfig& config, bool has_checkpoint) {
  if (config.resume == "never") return false;
  if (config.resume == "auto") return has_checkpoint;
  std::error_code none;
  if (!fs::exists(config.resume + "/state.json", none)) return true;  // an error is reported
  const fs::path parent = fs::canonical(config.resume, none).parent_path();
  return fs::equivalent(parent, fs::path(config.output_dir) / "checkpoints", none);
}

// Moves all of them, or none. Throws fs::filesystem_error.
void move_all(const std::vector<fs::path>& found, const fs::path& to) {
  fs::create_directory(to);
  size_t moved = 0;
  try {
    for (; moved < found.size(); ++moved) fs::rename(found[moved], to / found[moved].filename());
  } catch (const fs::filesystem_error&) {
    std::error_code none;
    while (moved-- > 0) fs::rename(to / found[moved].filename(), found[moved], none);
    fs::remove(to, none);  // if it is empty
    throw;
  }
}

std::string free_name(const std::string& base) {
  std::error_code none;
  for (int64_t n = 1;; ++n) {
    const std::string free = temper::str(base, "-", n);
    if (!fs::exists(fs::symlink_status(free, none))) return free;
  }
}

}  // namespace

std::string changed_settings(RunConfig& config) {
  const std::string file = config.output_dir + "/config.yaml";
  if (!fs::exists(file)) return {};
  YamlNode before = parse_yaml(read_file(file, size_t{1} << 20), file);
  const YamlNode now = parse_yaml(dump_run_config(config), "this run");
  const models::DeviceChoice earlier = choice_of(before.find("model")),
                             present = choice_of(now.find("model"));
  const bool same_device = is_same_device(earlier, present),
             same_backend = is_same_backend(earlier, present);
  std::string changes;
  for (const std::string& change : changed_keys(before, now))
    if (!change.starts_with("resume:") && !change.starts_with("defaulted") &&
        !(same_device && change.starts_with("model.device:")) &&
        !(same_backend && change.starts_with("model.backend:")) && !is_new_key(config, change) &&
        !is_default_weight(change))
      changes += (changes.empty() ? "" : ", ") + change;
  return changes;
}

std::string other_new_tokens(const RunConfig& config, const Checkpoint& checkpoint) {
  const Json before = checkpoint.values.value(models::kNewTokens, Json());
  const std::vector<std::string>& now = config.model.new_tokens;
  if (!before.is_array() || before == Json(now)) return {};
  std::vector<std::string> texts;
  for (const Json& text : before) texts.push_back(text.is_string() ? text.get<std::string>() : "");
  return temper::str(config.where("model.new_tokens"), ": ", checkpoint.directory,
                     " was trained with others: ", models::first_difference_of_tokens(now, texts),
                     "; resume: never or another output_dir starts anew");
}

std::string free_name_beside(const std::string& directory, const std::string& kind) {
  std::error_code none;
  fs::path base = fs::path(directory + "/").lexically_normal().parent_path();
  const std::string name = base.filename().string();
  // A link's target is where files can be moved to by their names alone.
  if (fs::is_symlink(base, none) || name.empty() || name == "." || name == "..")
    base = fs::canonical(directory);
  return free_name(base.string() + "." + kind);
}

std::vector<fs::path> earlier_files(RunConfig& config) {
  const fs::path directory = config.output_dir;
  const bool has_checkpoint = !Checkpoints(config.output_dir, 1).all().empty();
  if (resumes_here(config, has_checkpoint)) return {};
  const bool over = config.resume != "auto";
  std::error_code none;
  std::vector<fs::path> found;
  const auto add = [&](const char* name) {
    if (fs::exists(directory / name, none)) found.push_back(directory / name);
  };
  for (const char* name : kRunModels) add(name);
  if (has_checkpoint) add("checkpoints");
  const fs::path metrics = directory / "metrics.jsonl";
  const bool has_rows = fs::exists(metrics, none) && fs::file_size(metrics, none) > 0 && !none;
  if (found.empty() && !(over && has_rows)) return {};
  if (!over && !has_sign_of_run(directory)) {
    const fs::path model = directory / kRunModels[0];
    config.require(!fs::exists(model, none), "output_dir", "found ", model.string(),
                   ", which no run left there and this one would replace; expected a directory "
                   "without it; move it elsewhere, or choose another output_dir");
    return {};
  }
  for (const char* name : kRunFiles) add(name);
  for (fs::directory_iterator it(directory, none), end; !none && it != end; it.increment(none)) {
    const std::string name = it->path().filename().string();  // trace.rank1.json
    if (name.starts_with("trace.rank") && name.ends_with(".json")) found.push_back(it->path());
  }
  const auto keep = [&](const std::string& path) {
    if (fs::exists(path, none))
      std::erase_if(found, [&](const fs::path& entry) { return lies_in(path, entry); });
  };
  each_input(config, [&](const std::string&, const std::string& text, InputFiles) {
    keep(text);
    if (text.find_first_of("*?[") == text.npos) return;
    try {
      for (const std::string& file : data::find_row_files(text)) keep(file);
    } catch (const Error&) {  // it is no pattern of files
    }
  });
  keep(config.resume);
  return found;
}

std::string move_earlier_run(RunConfig& config) {
  const std::vector<fs::path> found = earlier_files(config);
  if (found.empty()) return {};
  std::string old = free_name_beside(config.output_dir, "old");
  try {
    try {
      move_all(found, old);
    } catch (const fs::filesystem_error&) {  // a file system of its own, as a container's volume
      old = free_name((fs::path(config.output_dir) / "old").string());
      move_all(found, old);
    }
  } catch (const fs::filesystem_error& e) {
    throw ConfigError(temper::str(config.where("output_dir"), ": ", config.output_dir,
                                  " holds what an earlier run left, which this one would replace, "
                                  "and it cannot be moved to ",
                                  old, ": ", e.code().message(), " (",
                                  e.path1().filename().string(),
                                  "); all of it is where it was; move it elsewhere, or choose "
                                  "another output_dir"));
  }
  return old;
}

void check_separate_output(RunConfig& config) {
  const auto check_apart = [&](const std::string& directory, const char* key) {
    std::error_code none;
    config.require(!fs::equivalent(config.output_dir, directory, none), "output_dir", "found ",
                   config.output_dir, ", the directory of ", key,
                   "; expected another one: the files of the run would lie among those of the "
                   "model");
  };
  check_apart(config.model.path, "model.path");
  if (config.adapter.path) check_apart(*config.adapter.path, "adapter.path");
  each_input(config, [&](const std::string& key, const std::string& text, InputFiles) {
    for (const char* replaced : kReplaced) {
      const fs::path directory = fs::path(config.output_dir) / replaced;
      std::error_code none;
      if (!fs::exists(directory, none) || !fs::exists(text, none) || !lies_in(text, directory))
        continue;
      throw ConfigError(temper::str(
          config.where(key), ": found ", text, ", which this run would replace: it lies in ",
          config.output_dir, ", its output_dir; expected another output_dir"));
    }
  });
}

}  // namespace temper::train
