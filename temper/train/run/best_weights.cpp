#include "temper/train/run/best_weights.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "temper/base/error.h"
#include "temper/train/run/checkpoint/checkpoint.h"
#include "temper/train/run/whole_directory.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

// The value and step of the best evaluation in KeepBest's state; null: there was none.
Json evaluation_of(const Json& state) {
  if (!state.is_object() || !state.value("best", Json()).is_number()) return {};
  return {state["best"], state.value("step", Json())};
}

Json evaluation_before(const std::string& checkpoint) {
  const Json hooks = Checkpoints::record(checkpoint).values.value("hooks", Json());
  return evaluation_of(hooks.is_object() ? hooks.value("keep_best", Json()) : Json());
}

// Of the weights in best/. An earlier version left no record there: they are what the newest
// checkpoint says.
Json evaluation_there(const std::string& run) {
  const std::string record = run + "/best/" + kBestRecord;
  if (fs::exists(record)) return evaluation_of(read_json_file(record));
  const std::vector<std::string> all = Checkpoints(run, 1).all();
  return all.empty() ? Json() : evaluation_before(all.front());
}

}  // namespace

bool has_best_of(const std::string& run, const std::string& checkpoint) {
  if (!fs::exists(run + "/best")) return false;
  try {
    const Json wanted = evaluation_before(checkpoint);
    return !wanted.is_null() && wanted == evaluation_there(run);
  } catch (const DataError&) {  // damaged: nobody knows
    return false;
  }
}

// best/ last: it says that all are there.
void copy_best(const std::string& run, const std::string& to) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run))
    if (const std::string name = entry.path().filename().string();
        name == "best" || name.starts_with("best-"))
      names.push_back(name);
  std::sort(names.rbegin(), names.rend());
  for (const std::string& name : names)
    write_directory(to, name, [&](const std::string& directory) {
      fs::copy(run + "/" + name, directory, fs::copy_options::recursive);
    });
}

bool take_best(const std::string& checkpoint, const std::string& output_dir) {
  // RUN/checkpoints/step-N or RUN/fork/step-N
  const fs::path run = fs::canonical(checkpoint).parent_path().parent_path();
  if (!has_best_of(run.string(), checkpoint)) return false;
  if (!fs::equivalent(run, output_dir)) copy_best(run.string(), output_dir);
  return true;
}

}  // namespace temper::train
