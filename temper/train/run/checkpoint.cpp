#include "temper/train/run/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "temper/base/config/config.h"
#include "temper/base/config/yaml.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/dist/environment.h"
#include "temper/models/files/file_digests.h"
#include "temper/models/files/tensors.h"
#include "temper/text/chat/template_date.h"
#include "temper/train/run/run_lock.h"
#include "temper/train/run/snapshot.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

// Key in the state of a complete run whose weights and moments were removed.
constexpr const char* kRecordAlone = "record_alone";
constexpr const char* kFork = "/fork";  // in output_dir: the checkpoint that a fork began at
constexpr size_t kLargestState = size_t{64} << 20;
constexpr size_t kLongestStep = 15;  // digits of a step's number
constexpr const char* kSetAside = "no_finite_gradient";

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

// Removes the manifest first: without it the rest is known to be no checkpoint.
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

std::string Checkpoints::temporary_name(const std::string& name) const {
  return output_dir_ + "/.writing-" + name;
}

std::string Checkpoints::begin(const std::string& name) const {
  const std::string temporary = temporary_name(name);
  fs::remove_all(temporary);
  fs::create_directories(temporary);
  return temporary;
}

// An existing directory and the new one change places in one step; where the file system cannot do
// that, the old one has another name in between.
void Checkpoints::commit(const std::string& temporary, const std::string& path) const {
  sync_directory(temporary);
  fs::create_directories(fs::path(path).parent_path());
  const bool exchanged = fs::exists(path) && ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD,
                                                         path.c_str(), RENAME_EXCHANGE) == 0;
  const std::string old = exchanged ? temporary : temporary + "-over";
  if (!exchanged) {
    fs::remove_all(old);
    if (fs::exists(path)) fs::rename(path, old);  // a file system that cannot exchange
    fs::rename(temporary, path);
  }
  sync_directory(fs::path(path).parent_path().string());
  fs::remove_all(old);
}

void Checkpoints::write(const std::string& name,
                        const std::function<void(const std::string&)>& make) const {
  const std::string temporary = begin(name);
  make(temporary);
  commit(temporary, output_dir_ + "/" + name);
}

namespace {

// Does the work on every rank of the group. All of them throw the error of the first that failed.
void on_all(dist::Group& group, const std::function<void()>& work) {
  std::string error;
  try {
    work();
  } catch (const std::exception& e) {
    error = str("rank ", dist::run_rank(group), ": ", e.what());
  }
  for (const std::string& one : group.all_gather(error)) check(one.empty(), one);
}

// Whether hosts that write to different places of one file see each other's writes whole: a client
// of these file systems may write back more of a page than it was given.
bool is_coherent(const std::string& directory) {
  struct statfs about{};
  if (::statfs(directory.c_str(), &about) != 0) return false;
  constexpr uint32_t kNfs = 0x6969, kSmb = 0x517B, kCifs = 0xFF534D42, kSmb2 = 0xFE534D42,
                     k9p = 0x01021997, kFuse = 0x65735546, kAfs = 0x5346414F;
  const auto type = static_cast<uint32_t>(about.f_type);
  for (const uint32_t other : {kNfs, kSmb, kCifs, kSmb2, k9p, kFuse, kAfs})
    if (type == other) return false;
  return true;
}

// Machines may share a name ("localhost").
std::string this_machine() {
  try {
    return dist::host_name() + " " + read_file("/proc/sys/kernel/random/boot_id", 64);
  } catch (const Error&) {
    return dist::host_name();
  }
}

// Whether all ranks may write into files of the directory, which the first one has made.
bool may_write_together(const std::string& directory, dist::Group& group) {
  const std::string file = directory + "/seen";
  std::string token;
  on_all(group, [&] {
    if (group.rank() > 0) return;
    std::random_device device;
    token = str(device(), " ", device(), " ", device(), " ", device());
    write_file_atomic(file, token);
  });
  token = group.all_gather(token)[0];
  const std::vector<std::string> hosts = group.all_gather(this_machine());
  const bool one_host = std::set<std::string>(hosts.begin(), hosts.end()).size() == 1;
  bool seen = one_host || is_coherent(directory);
  try {
    seen = read_file(file, token.size()) == token && seen;
    const std::string own = str(file, ".", group.rank());
    write_file_atomic(own, "");
    fs::remove(own);
  } catch (const std::exception&) {  // it is another directory, or may not be written here
    seen = false;
  }
  const bool by_all = group.all_reduce_max(seen ? 0 : 1) == 0;
  if (group.rank() == 0) fs::remove(file);
  return by_all;
}

}  // namespace

namespace {

constexpr const char* kFiles = "files";  // in state.json: name -> {bytes, hash}
constexpr const char* kHash = "hash";    // in state.json: the hash of all its other keys

int hashing_threads() { return at::get_num_threads(); }

// Hashes of a checkpoint's files, which have just been written and are still in the page cache.
Json hashes_in(const std::string& directory, int threads) {
  Json files = Json::object();
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().extension() == ".safetensors")
      files[entry.path().filename().string()] = {
          {"bytes", entry.file_size()},
          {"hash", models::content_hash(entry.path().string(), threads)}};
  return files;
}

void write_state(const std::string& directory, Json state) {
  state.erase(kHash);
  state[kHash] = models::content_hash_of(state.dump());
  write_file_atomic(directory + "/state.json", state.dump(2) + "\n");
}

}  // namespace

namespace {

using Files = std::map<std::string, TensorMap>;  // tensors by the name of their file

// Ranks write side by side: the files exist when this returns, and each rank's part is written by
// the result.
std::function<void()> begin_parts(const std::string& directory, Files files, const dist::Mesh& mesh,
                                  Snapshot* snapshot) {
  on_all(*mesh.world, [&] {
    for (const auto& [name, tensors] : files)
      if (mesh.world->rank() == 0) begin_safetensors(directory + "/" + name, tensors);
  });
  if (mesh.data->rank() > 0) return [] {};  // another replica writes the same
  for (auto& [file, tensors] : files) {
    if (!snapshot) break;
    TensorMap parts = tensors;
    std::erase_if(parts, [](const auto& tensor) { return !tensor.second.own; });
    for (const auto& [name, part] : snapshot->of(parts)) tensors[name] = part;
  }
  return [directory, files = std::move(files)] {
    for (const auto& [name, tensors] : files) write_own_parts(directory + "/" + name, tensors);
  };
}

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
  state[kFiles] = hashes_in(temporary, threads);
  write_state(temporary, std::move(state));
  if (before_commit) before_commit(step, temporary);
  const std::string directory = output_dir_ + "/checkpoints";
  commit(temporary, str(directory, "/step-", step));
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
  const std::string temporary = temporary_name("checkpoint");
  const auto begins = [&] {
    if (writes) begin("checkpoint");
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
  const int threads = copies ? 1 : hashing_threads();
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

namespace {

void mark(const std::string& directory, const char* key) {
  Json state = read_json_file(directory + "/state.json", kLargestState);
  state[key] = true;
  write_state(directory, std::move(state));
}

}  // namespace

void Checkpoints::mark_complete(int64_t step) const {
  mark(temper::str(output_dir_, "/checkpoints/step-", step), "complete");
}

void Checkpoints::set_aside(int64_t step) const {
  const std::string directory = temper::str(output_dir_, "/checkpoints/step-", step);
  if (fs::exists(directory + "/state.json")) mark(directory, kSetAside);
}

void Checkpoints::keep_record_alone(int64_t step) const {
  const std::string directory = output_dir_ + "/checkpoints";
  const std::string kept = temper::str(directory, "/step-", step);
  mark(kept, kRecordAlone);  // before the rest goes
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

Json read_state(const std::string& directory) {
  check<DataError>(fs::exists(directory + "/state.json"), directory,
                   ": not a checkpoint: it has no state.json", Checkpoints::newest_hint(directory));
  Json state = read_json_file(directory + "/state.json", kLargestState);
  const std::string where = directory + "/state.json";
  check<DataError>(state.is_object() && state.contains("step") &&
                       state["step"].is_number_integer() && state["step"].get<int64_t>() >= 0 &&
                       std::to_string(state["step"].get<int64_t>()).size() <= kLongestStep,
                   where, ": `step` is missing, or not a whole number of at least 0");
  check<DataError>(!state.contains("complete") || state["complete"].is_boolean(), where,
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

// What the copy of a checkpoint has for itself: it is of another run, which is not complete, has no
// metrics yet, and may try again what gave no finite gradient.
Json state_of_fork(Json state, const std::string& line) {
  for (const char* key : {"complete", kSetAside, Checkpoints::kMetricsRows}) state.erase(key);
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
  const std::string temporary = begin("fork");
  for (const auto& entry : fs::directory_iterator(checkpoint))
    if (entry.path().filename() != "state.json")
      fs::copy_file(entry.path(), fs::path(temporary) / entry.path().filename());
  write_state(temporary, state_of_fork(read_state(checkpoint), line));
  fs::create_directories(output_dir_ + kFork);
  commit(temporary, output_dir_ + kFork + "/" + name);
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
    check<DataError>(written.value(kHash, Json()) == models::content_hash(path, hashing_threads()),
                     path,
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
  c.complete = c.values.value("complete", false);
  return c;
}

Checkpoint Checkpoints::load(const std::string& directory, const Trainables& trainables) {
  Checkpoint c = record(directory);
  check<DataError>(c.values.value(kRecordAlone, Json()) != true, directory,
                   ": holds no weights: its run is complete, and train.keep_final_checkpoint was "
                   "false");
  if (fs::exists(directory + "/task.safetensors"))
    c.tensors = read_safetensors(directory + "/task.safetensors");
  std::vector<std::function<void()>> set;  // once everything is known to be there
  for (const auto& trainable : trainables) {
    const TensorMap weights = read_safetensors(directory + "/" + trainable->name + ".safetensors");
    for (const NamedParameter& p : trainable->optimizer.parameters()) {
      const auto it = weights.find(p.name);
      check<DataError>(it != weights.end() && it->second.shape == p.parameter->whole_shape(),
                       directory, ": `", p.name,
                       "` is missing or of another shape; the checkpoint is of another model or "
                       "adapter; resume: never or another "
                       "output_dir starts anew");
      set.push_back([parameter = p.parameter, view = it->second] {
        parameter->set_whole_value(models::to_tensor(view, at::kFloat));
      });
    }
    check<DataError>(
        weights.size() <= trainable->optimizer.parameters().size(), directory, ": holds ",
        weights.size(), " trained tensors of ", trainable->name, ", the run has ",
        trainable->optimizer.parameters().size(),
        "; what was trained would be lost: the checkpoint is of another adapter, or of another "
        "train.freeze; resume: never or another output_dir starts anew");
    const TensorMap moments =
        read_safetensors(directory + "/" + trainable->name + ".optimizer.safetensors");
    trainable->optimizer.check_moments(moments, directory);
    set.push_back([optimizer = &trainable->optimizer, moments, directory,
                   updates = updates_of(c.values, trainable->name, directory)] {
      optimizer->load(moments, updates, directory);
    });
  }
  for (const auto& write : set) write();
  return c;
}

}  // namespace temper::train
