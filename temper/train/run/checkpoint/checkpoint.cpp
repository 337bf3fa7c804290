#include "temper/train/run/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/io/safetensors.h"
#include "temper/models/files/tensors.h"
#include "temper/train/run/checkpoint/parallel_write.h"
#include "temper/train/run/checkpoint/snapshot.h"
#include "temper/train/run/checkpoint/state_file.h"
#include "temper/train/run/run_lock.h"
#include "temper/train/run/whole_directory.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

constexpr const char* kFork = "/fork";  // in output_dir: the checkpoint that a fork began at

// Whether the path has the name of a checkpoint: step-N.
bool is_step(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("step-") && name.find_first_not_of("0123456789", 5) == name.npos &&
         name.size() > 5 && name.size() <= 5 + kLongestStep;
}

// Removes the remains of checkpoints that killed processes were removing.
void remove_remains(const std::string& directory) {
  std::vector<fs::path> remains;
  for (const auto& entry : fs::directory_iterator(directory))
    if (is_step(entry.path()) && !fs::exists(entry.path() / "state.json"))
      remains.push_back(entry.path());
  for (const fs::path& path : remains) fs::remove_all(path);
}

// Removes state.json first: a directory without it is no checkpoint.
void remove_checkpoint(const fs::path& path) {
  fs::remove(path / "state.json");
  fs::remove_all(path);
}

// Steps of the whole checkpoints, ascending.
std::vector<int64_t> steps_in(const std::string& directory) {
  std::vector<int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (!is_step(entry.path())) continue;
    const std::string name = entry.path().filename().string();
    if (fs::exists(entry.path() / "state.json")) steps.push_back(std::stoll(name.substr(5)));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}
}  // namespace

Checkpoints::Checkpoints(std::string output_dir, int64_t keep)
    : output_dir_(std::move(output_dir)), keep_(keep) {}

namespace {

using Files = std::map<std::string, TensorMap>;  // tensors by the name of their file

bool on_host(const Trainables& trainables) {
  for (const auto& trainable : trainables)
    for (const NamedParameter& p : trainable->optimizer.parameters())
      if (!p.parameter->device().is_cpu()) return false;
  return true;
}

void write_files(const std::string& directory, const Files& files) {
  for (const auto& [name, tensors] : files)
    write_safetensors(directory.empty() ? "" : directory + "/" + name, tensors);
}

}  // namespace

// The files of trained tensors are there.
void Checkpoints::finish(const std::string& temporary, int64_t step, const TensorMap& tensors,
                         Json state, int threads) const {
  if (!tensors.empty()) write_safetensors(temporary + "/task.safetensors", tensors);
  write_state_with_hashes(temporary, std::move(state), threads);
  if (before_commit) before_commit(step, temporary);
  const std::string directory = output_dir_ + "/checkpoints";
  commit_directory(temporary, str(directory, "/step-", step));
  remove_remains(directory);
  const std::vector<int64_t> steps = steps_in(directory);
  const auto here = std::find(steps.begin(), steps.end(), step);
  for (auto it = steps.begin(); it != steps.end(); ++it)
    if (it > here || here - it >= keep_) remove_checkpoint(str(directory, "/step-", *it));
}

Checkpoints::Writing Checkpoints::begin_save(int64_t step, const Trainables& trainables,
                                             const Json& values, const TensorMap& tensors,
                                             const dist::Mesh& mesh, bool copies) const {
  const bool writes = mesh.world->rank() == 0, shared = mesh.model->size() > 1;
  const std::string temporary = temporary_path(output_dir_, "checkpoint");
  const auto begins = [&] {
    if (writes) begin_directory(output_dir_, "checkpoint");
  };
  if (shared)
    on_all(*mesh.world, begins);
  else
    begins();
  Files files = trained_files(trainables);
  Writing writing;
  if (copies) writing.snapshot = std::make_shared<Snapshot>();
  writing.together = shared && may_write_together(temporary, *mesh.world);
  if (writing.together) {
    writing.parts = begin_parts(temporary, std::exchange(files, {}), mesh, writing.snapshot.get());
  } else if (shared) {
    write_files(writes ? temporary : "", files);
    files.clear();
  }
  if (writes && copies)
    for (auto& [name, file] : files) file = writing.snapshot->of(file);
  // A device's memory is read by the thread that computes on it.
  if (copies && !on_host(trainables)) writing.snapshot->complete();
  if (!writes) return writing;
  Json state = values;
  state["step"] = step;
  for (const auto& trainable : trainables)
    state["updates"][trainable->name] = trainable->optimizer.steps();
  // Beside training one thread hashes.
  const int threads = copies ? 1 : at::get_num_threads();
  writing.finish = [=, this, files = std::move(files), state = std::move(state),
                    tensors = copies ? copy_of(tensors) : tensors] {
    write_files(temporary, files);
    finish(temporary, step, tensors, state, threads);
  };
  return writing;
}

bool Checkpoints::save(int64_t step, const Trainables& trainables, const Json& values,
                       const TensorMap& tensors, const dist::Mesh& mesh) const {
  const Writing writing = begin_save(step, trainables, values, tensors, mesh, false);
  if (writing.parts) on_all(*mesh.world, writing.parts);
  if (writing.finish) writing.finish();
  return writing.together;
}

void Checkpoints::mark_complete(int64_t step) const {
  mark_state(temper::str(output_dir_, "/checkpoints/step-", step), kComplete);
}

void Checkpoints::set_aside(int64_t step) const {
  const std::string directory = temper::str(output_dir_, "/checkpoints/step-", step);
  if (fs::exists(directory + "/state.json")) mark_state(directory, kSetAside);
}

void Checkpoints::keep_record_alone(int64_t step) const {
  const std::string directory = output_dir_ + "/checkpoints";
  const std::string kept = temper::str(directory, "/step-", step);
  mark_state(kept, kRecordAlone);  // before the rest goes
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kept))
    if (entry.path().filename() != "state.json") files.push_back(entry.path());
  for (const fs::path& file : files) fs::remove(file);
  for (const int64_t other : steps_in(directory))
    if (other != step) remove_checkpoint(temper::str(directory, "/step-", other));
}

std::vector<std::string> Checkpoints::all() const {
  std::vector<std::string> out;
  for (const int64_t step : steps_in(output_dir_ + "/checkpoints"))
    out.insert(out.begin(), temper::str(output_dir_, "/checkpoints/step-", step));
  if (const std::string begun = fork_point(); !begun.empty()) out.push_back(begun);
  return out;
}

bool Checkpoints::has(const std::string& directory) const {
  const std::vector<std::string> here = all();
  return std::find(here.begin(), here.end(), directory) != here.end();
}

std::string Checkpoints::fork_point() const {
  const std::string directory = output_dir_ + kFork;
  const std::vector<int64_t> steps = steps_in(directory);
  return steps.empty() ? "" : temper::str(directory, "/step-", steps.back());
}

std::string Checkpoints::newest_hint(const std::string& path) {
  // RUN, RUN/final, RUN/checkpoints and RUN/checkpoints/step-N all mean RUN.
  fs::path run = fs::path(path + "/").lexically_normal().parent_path();
  for (int above = 0; above < 3; ++above) {
    const std::vector<std::string> found = Checkpoints(run.empty() ? "." : run.string(), 1).all();
    if (!found.empty())
      return temper::str("; the newest checkpoint of ", run.string(), " is ", found[0]);
    if (!run.has_parent_path() || run == run.parent_path()) break;
    run = run.parent_path();
  }
  return {};
}

namespace {

// What the copy of a checkpoint has for itself: it is of another run, which is not complete, has no
// metrics yet, and may try again what gave no finite gradient.
Json state_of_fork(Json state, const std::string& line) {
  for (const char* key : {kComplete, kSetAside, Checkpoints::kMetricsRows}) state.erase(key);
  state[Checkpoints::kRun] = new_run_id();
  if (!line.empty()) state[Checkpoints::kManifestLine] = line;
  return state;
}

int64_t updates_of(const Json& state, const std::string& name, const std::string& directory) {
  const Json updates = state.value("updates", Json::object());
  check<DataError>(updates.is_object() && updates.contains(name) &&
                       updates[name].is_number_integer() && updates[name].get<int64_t>() >= 0,
                   directory, "/state.json: no number of `updates` of ", name);
  return updates[name].get<int64_t>();
}

}  // namespace

void Checkpoints::begin_at(const std::string& checkpoint, const std::string& line) const {
  check_files(checkpoint);
  const std::string name = fs::path(checkpoint).filename().string();
  const std::string temporary = begin_directory(output_dir_, "fork");
  for (const auto& entry : fs::directory_iterator(checkpoint))
    if (entry.path().filename() != "state.json")
      fs::copy_file(entry.path(), fs::path(temporary) / entry.path().filename());
  write_state(temporary, state_of_fork(read_state(checkpoint), line));
  fs::create_directories(output_dir_ + kFork);
  commit_directory(temporary, output_dir_ + kFork + "/" + name);
}

namespace {

// What a checkpoint has of a trainable.
struct Trained {
  TensorMap weights = {}, moments = {};
  int64_t updates = 0;
};

// Throws DataError unless the names and shapes are those of the trainable.
Trained read_trained(const Checkpoint& c, const Trainable& trainable) {
  const std::string file = c.directory + "/" + trainable.name;
  const std::vector<NamedParameter>& parameters = trainable.optimizer.parameters();
  Trained found{.weights = read_safetensors(file + ".safetensors")};
  for (const NamedParameter& p : parameters) {
    const auto it = found.weights.find(p.name);
    check<DataError>(it != found.weights.end() && it->second.shape == p.parameter->whole_shape(),
                     c.directory, ": `", p.name,
                     "` is missing or of another shape; the checkpoint is of another model or "
                     "adapter; resume: never or another "
                     "output_dir starts anew");
  }
  check<DataError>(
      found.weights.size() <= parameters.size(), c.directory, ": holds ", found.weights.size(),
      " trained tensors of ", trainable.name, ", the run has ", parameters.size(),
      "; what was trained would be lost: the checkpoint is of another adapter, or of another "
      "train.freeze; resume: never or another output_dir starts anew");
  found.moments = read_safetensors(file + ".optimizer.safetensors");
  trainable.optimizer.check_moments(found.moments, c.directory);
  found.updates = updates_of(c.values, trainable.name, c.directory);
  return found;
}

// The record of a checkpoint that has more than that.
Checkpoint record_of_whole(const std::string& directory) {
  Checkpoint c = Checkpoints::record(directory);
  check<DataError>(c.values.value(kRecordAlone, Json()) != true, directory,
                   ": holds no weights: its run is complete, and train.keep_final_checkpoint was "
                   "false");
  return c;
}

}  // namespace

Checkpoint Checkpoints::check_trained(const std::string& directory, const Trainables& trainables) {
  Checkpoint c = record_of_whole(directory);
  for (const auto& trainable : trainables) read_trained(c, *trainable);
  return c;
}

Checkpoint Checkpoints::load(const std::string& directory, const Trainables& trainables) {
  Checkpoint c = record_of_whole(directory);
  if (fs::exists(directory + "/task.safetensors"))
    c.tensors = read_safetensors(directory + "/task.safetensors");
  std::vector<Trained> found;  // once everything is known to be there, it is set
  for (const auto& trainable : trainables) found.push_back(read_trained(c, *trainable));
  for (size_t i = 0; i < found.size(); ++i) {
    Optimizer& optimizer = trainables[i]->optimizer;
    for (const NamedParameter& p : optimizer.parameters())
      p.parameter->set_whole_value(models::to_tensor(found[i].weights.at(p.name), at::kFloat));
    optimizer.load(found[i].moments, found[i].updates, directory);
  }
  return c;
}

}  // namespace temper::train
