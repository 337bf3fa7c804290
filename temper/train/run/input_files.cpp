#include "temper/train/run/input_files.h"

#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/data/read/row_set.h"
#include "temper/io/gguf.h"
#include "temper/models/files/file_digests.h"
#include "temper/models/files/load.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

// longest wait of a checkpoint for the hashes of small files
constexpr auto kPatience = std::chrono::seconds(10);
constexpr int64_t kSmall = int64_t{16} << 20;  // bytes of the largest small file

// Verbs that do not read the initial weights again, unless those are frozen.
constexpr std::array kWithoutReference{"sft", "orpo", "reward", "distill"};
constexpr std::array kWeights{".safetensors", ".bin", ".gguf"};
constexpr std::array kSmallFiles{".json", ".jinja", ".model", ".txt"};

template <size_t N>
bool is_one_of(const std::array<const char*, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What a key says of the files that it names.
struct Named {
  const std::string& key;
  const std::string& value;
  InputFiles kind;
};

std::optional<InputFile> look_at(const Named& named, const fs::path& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  return InputFile{
      named.key,
      named.value,
      named.kind,
      path.filename().string(),
      path.string(),
      about.st_size,
      str(about.st_dev, " ", about.st_ino, " ", about.st_mtim.tv_sec, ".", about.st_mtim.tv_nsec,
          " ", about.st_ctim.tv_sec, ".", about.st_ctim.tv_nsec),
      is_one_of(kWeights, path.extension().string()),
      ""};
}

// Adds the files of a model or adapter: of weights in several forms only those that are read.
void add_model_files(const Named& named, const std::string& directory, bool weights,
                     std::vector<InputFile>& to) {
  std::vector<InputFile> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none)) {
    const std::string extension = entry.path().extension().string();
    if (!is_one_of(kSmallFiles, extension) && !(weights && is_one_of(kWeights, extension)))
      continue;
    if (std::optional<InputFile> file = look_at(named, entry.path()))
      found.push_back(std::move(*file));
  }
  const auto is_safetensors = [](const InputFile& f) { return f.name.ends_with(".safetensors"); };
  if (std::any_of(found.begin(), found.end(), is_safetensors))
    std::erase_if(found, [&](const InputFile& f) { return f.weights && !is_safetensors(f); });
  std::sort(found.begin(), found.end(),
            [](const InputFile& a, const InputFile& b) { return a.name < b.name; });
  to.insert(to.end(), found.begin(), found.end());
}

void add_files(const Named& named, bool weights, std::vector<InputFile>& to) {
  const std::string& value = named.value;
  std::vector<std::string> paths;
  try {
    paths = named_paths(value, named.kind);
    if (paths.size() == 1 && is_gguf_file(paths[0])) paths = gguf_shards(paths[0]);
  } catch (const Error&) {
    return;  // loading the model reports the error
  }
  std::error_code none;
  const size_t wildcard = value.find_first_of("*?[");
  const bool is_pattern = wildcard != std::string::npos && !fs::exists(value, none);
  const std::string fixed = value.substr(0, value.rfind('/', wildcard) + 1);
  for (const std::string& path : paths) {
    if (fs::is_directory(path, none) && named.kind != InputFiles::kProgram)
      add_model_files(named, path, weights, to);
    else if (std::optional<InputFile> file = look_at(named, path))
      to.push_back(std::move(*file));
    if (is_pattern && path.starts_with(fixed) && !to.empty() && to.back().path == path)
      to.back().name = path.substr(fixed.size());
  }
}

bool begins_run(InputFiles kind) {
  return kind == InputFiles::kBase || kind == InputFiles::kAdapter;
}

void lower_priority() {
  constexpr int kLowest = 19;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kLowest);
}

// The hash of the content, or "" where the file cannot be read: whoever needs it reports that.
std::string hash_if_readable(const InputFile& file, int threads,
                             const std::atomic<bool>* cancelled) {
  try {
    return models::content_hash(file.path, threads, cancelled);
  } catch (const Error&) {
    return "";
  }
}

bool is_frozen_base(const InputFile& file) { return file.weights && begins_run(file.kind); }

}  // namespace

std::string InputFile::label() const { return str(key, " (", path, ")"); }

void each_input(RunConfig& config, const VisitInput& visit) {
  const std::vector<Field> fields = Fields::of(config);
  temper::each_input(fields, write_fields(fields), visit);
}

std::vector<std::string> named_paths(const std::string& value, InputFiles kind) {
  if (kind == InputFiles::kRows) return data::find_row_files(value);
  const bool of_model = kind == InputFiles::kBase || kind == InputFiles::kAdapter ||
                        kind == InputFiles::kModel || kind == InputFiles::kTokenizer;
  return {of_model ? models::resolve_model_path(value) : value};
}

std::vector<InputFile> input_files(RunConfig& config, bool all) {
  const bool frozen = config.has_adapter() || !config.train.freeze.empty();
  const bool needs_start = all || frozen || !is_one_of(kWithoutReference, config.verb.value_or(""));
  std::vector<InputFile> files;
  each_input(config, [&](const std::string& key, const std::string& value, InputFiles kind) {
    const bool weights = kind != InputFiles::kTokenizer && (needs_start || !begins_run(kind));
    add_files({key, value, kind}, weights, files);
  });
  return files;
}

InputHashes::InputHashes(std::vector<InputFile> files) : files_(std::move(files)) {
  std::vector<size_t> order;
  for (size_t i = 0; i < files_.size(); ++i)
    if (files_[i].hash.empty()) order.push_back(i);
  if (order.empty()) return;
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return files_[a].bytes < files_[b].bytes; });
  for (const size_t i : order) small_left_ += files_[i].bytes <= kSmall;
  computing_ = std::async(std::launch::async, [this, order] { compute(order); });
}

void InputHashes::compute(std::vector<size_t> order) {
  lower_priority();
  for (const size_t i : order) {
    const bool small = files_[i].bytes <= kSmall;
    std::string hash = hash_if_readable(files_[i], 1, &cancelled_);
    const std::lock_guard lock(mutex_);
    files_[i].hash = std::move(hash);
    if (small && --small_left_ == 0) changed_.notify_all();
  }
}

InputHashes::~InputHashes() { cancelled_ = true; }

Json InputHashes::to_json() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [this] { return small_left_ == 0; });
  Json list = Json::array();
  for (const InputFile& file : files_)
    list.push_back({{"key", file.key},
                    {"value", file.value},
                    {"name", file.name},
                    {"bytes", file.bytes},
                    {"stamp", file.stamp},
                    {"hash", file.hash}});
  return list;
}

namespace {

std::string entry_text(const Json& entry, const char* field) {
  return entry.is_object() && entry.contains(field) && entry[field].is_string()
             ? entry[field].get<std::string>()
             : std::string();
}

bool is_of(const Json& entry, const InputFile& file) {
  return entry_text(entry, "key") == file.key && entry_text(entry, "name") == file.name;
}

// Whether the record has the file's key with this value, or, in a record without values, one of its
// names. Else the key has another value, which is reported as a change of the config.
bool has_key_of(const Json& kept, const InputFile& file) {
  return std::any_of(kept.begin(), kept.end(), [&](const Json& entry) {
    return is_of(entry, file) ||
           (entry_text(entry, "key") == file.key && entry_text(entry, "value") == file.value);
  });
}

// Adds files that are new or missing. Weights beside those that are all still there are nothing
// that a run reads.
void add_come_and_gone(const std::vector<InputFile>& files, const Json& kept, ChangedInputs& to) {
  std::set<std::string> keys, frozen;
  for (const InputFile& file : files) {
    if (is_frozen_base(file)) frozen.insert(file.key);
    if (has_key_of(kept, file)) keys.insert(file.key);
  }
  std::set<std::string> replaced;  // keys whose base lacks weights
  for (const Json& entry : kept) {
    const std::string key = entry_text(entry, "key"), name = entry_text(entry, "name");
    const bool is_there = std::any_of(files.begin(), files.end(),
                                      [&](const InputFile& file) { return is_of(entry, file); });
    if (!keys.contains(key) || is_there) continue;
    const bool is_base =
        frozen.contains(key) && is_one_of(kWeights, fs::path(name).extension().string());
    if (is_base) replaced.insert(key);
    (is_base ? to.frozen : to.others).push_back(str(key, " (", name, "), which is gone"));
  }
  for (const InputFile& file : files)
    if (keys.contains(file.key) &&
        std::none_of(kept.begin(), kept.end(), [&](const Json& e) { return is_of(e, file); }))
      (replaced.contains(file.key) && is_frozen_base(file) ? to.frozen : to.others)
          .push_back(file.label() + ", which is new");
}

}  // namespace

ChangedInputs compare_inputs(std::vector<InputFile>& files, const Json& kept) {
  ChangedInputs changed;
  for (InputFile& file : files) {
    const auto before = std::find_if(kept.begin(), kept.end(),
                                     [&](const Json& entry) { return is_of(entry, file); });
    if (before == kept.end()) continue;
    const std::string hash = entry_text(*before, "hash");
    const bool same_size = before->value("bytes", Json()) == file.bytes;
    if (same_size && entry_text(*before, "stamp") == file.stamp) {
      file.hash = hash;
      continue;
    }
    if (same_size && hash.empty()) {
      changed.others.push_back(file.label() + ", which may be another: it had no hash yet");
      continue;
    }
    if (same_size) file.hash = hash_if_readable(file, at::get_num_threads(), nullptr);
    if (same_size && file.hash == hash) continue;
    (is_frozen_base(file) ? changed.frozen : changed.others).push_back(file.label());
  }
  add_come_and_gone(files, kept, changed);
  return changed;
}

}  // namespace temper::train
