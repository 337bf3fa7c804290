#include "temper/train/checkpoint.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/models/load.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

constexpr size_t kLargestState = size_t{64} << 20;
constexpr size_t kLongestStep = 15;  // digits

// Steps of the whole checkpoints, ascending.
std::vector<int64_t> steps_in(const std::string& directory) {
  std::vector<int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") ||
        name.find_first_not_of("0123456789", 5) != std::string::npos || name.size() == 5 ||
        name.size() > 5 + kLongestStep)
      continue;
    if (fs::exists(entry.path() / "state.json")) steps.push_back(std::stoll(name.substr(5)));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}
}  // namespace

Checkpoints::Checkpoints(std::string output_dir, int64_t keep)
    : output_dir_(std::move(output_dir)), keep_(keep) {}

std::string Checkpoints::begin(const std::string& name) const {
  const std::string temporary = output_dir_ + "/.writing-" + name;
  fs::remove_all(temporary);
  fs::create_directories(temporary);
  return temporary;
}

void Checkpoints::commit(const std::string& temporary, const std::string& path) const {
  sync_directory(temporary);
  fs::create_directories(fs::path(path).parent_path());
  const std::string old = output_dir_ + "/.old";
  fs::remove_all(old);
  if (fs::exists(path)) fs::rename(path, old);
  fs::rename(temporary, path);
  sync_directory(fs::path(path).parent_path().string());
  fs::remove_all(old);
}

void Checkpoints::save(int64_t step, const Optimizer& optimizer, const Json& state) const {
  const std::string temporary = begin("checkpoint");
  TensorMap weights;
  for (const NamedParameter& p : optimizer.parameters())
    weights[p.name] = models::to_view(p.parameter->value());
  write_safetensors(temporary + "/weights.safetensors", weights);
  write_safetensors(temporary + "/optimizer.safetensors", optimizer.save());
  Json whole = state;
  whole["step"] = step;
  write_file_atomic(temporary + "/state.json", whole.dump(2) + "\n");
  const std::string directory = output_dir_ + "/checkpoints";
  commit(temporary, temper::str(directory, "/step-", step));
  const std::vector<int64_t> steps = steps_in(directory);
  const auto here = std::find(steps.begin(), steps.end(), step);
  for (auto it = steps.begin(); it != steps.end(); ++it)
    if (it > here || here - it >= keep_) fs::remove_all(temper::str(directory, "/step-", *it));
}

void Checkpoints::mark_complete(int64_t step) const {
  const std::string path = temper::str(output_dir_, "/checkpoints/step-", step, "/state.json");
  Json state = read_json_file(path, kLargestState);
  state["complete"] = true;
  write_file_atomic(path, state.dump(2) + "\n");
}

std::vector<std::string> Checkpoints::all() const {
  std::vector<std::string> out;
  for (const int64_t step : steps_in(output_dir_ + "/checkpoints"))
    out.insert(out.begin(), temper::str(output_dir_, "/checkpoints/step-", step));
  return out;
}

Json Checkpoints::load(const std::string& directory, Optimizer& optimizer) {
  check<DataError>(fs::exists(directory + "/state.json"), directory,
                   ": not a checkpoint: it has no state.json");
  Json state = read_json_file(directory + "/state.json", kLargestState);
  check<DataError>(state.is_object() && state.contains("step") &&
                       state["step"].is_number_integer() && state["step"].get<int64_t>() >= 0 &&
                       std::to_string(state["step"].get<int64_t>()).size() <= kLongestStep,
                   directory, "/state.json: no `step`, or none that can be");
  check<DataError>(!state.contains("complete") || state["complete"].is_boolean(), directory,
                   "/state.json: `complete` must be true or false");
  const TensorMap weights = read_safetensors(directory + "/weights.safetensors");
  for (const NamedParameter& p : optimizer.parameters()) {
    const auto it = weights.find(p.name);
    check<DataError>(
        it != weights.end() && it->second.shape == p.parameter->shape(), directory, ": `", p.name,
        "` is missing or of another shape; the checkpoint is of another model or adapter");
    p.parameter->set_value(models::to_tensor(it->second, at::kFloat).clone());
  }
  optimizer.load(read_safetensors(directory + "/optimizer.safetensors"),
                 state["step"].get<int64_t>(), directory);
  return state;
}

}  // namespace temper::train
