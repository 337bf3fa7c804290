#include "temper/train/manifest/manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "temper/base/work_queue.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;

constexpr const char *kPrevious = "previous", *kFile = "/manifest.jsonl";
constexpr size_t kThreads = 4;  // that hash files
// What complete() adds to the line of a step, in their order.
constexpr std::array kDigests{"weights", "final", kEndedEarly};

std::string with_previous(const std::string& begin, const std::string& previous) {
  return begin + ", \"previous\": \"" + previous + "\"}";
}

// A line's text up to `previous`, which is its last member.
std::string without_previous(const std::string& text) {
  return text.substr(0, text.rfind(", \"previous\""));
}

// `{"a": 1, "b": 2` of an object, or `, "a": 1, "b": 2` behind other members.
std::string members_of(const Json& object, const std::string& begin) {
  std::string text;
  for (const auto& [key, value] : object.items())
    text += str(text.empty() ? begin : ", ", "\"", key, "\": ", dump_json(value));
  return text;
}

void check_order(const ManifestLine& line, int64_t steps, const std::string& where) {
  const auto is_count = [&](const char* key) {
    return line.value[key].is_number_integer() && line.value[key].get<int64_t>() >= 0;
  };
  if (line.value.contains("step")) {
    check<BrokenManifest>(line.number > 1, where, ": no digests of the inputs stand before step");
    check<BrokenManifest>(is_count("step") && line.step() == steps + 1, where, ": step: found ",
                          dump_json(line.value["step"]), ", expected ", steps + 1);
    return;
  }
  check<BrokenManifest>(!line.value.contains("after") || is_count("after"), where,
                        ": after: found ", dump_json(line.value.value("after", Json())),
                        ", expected a number of steps");
  check<BrokenManifest>(line.number == 1 || line.after() == steps, where, ": after: found ",
                        line.after(), ", expected ", steps);
}

}  // namespace

std::vector<ManifestLine> read_manifest(const std::string& path) {
  std::vector<ManifestLine> lines;
  if (!fs::exists(path)) return lines;
  const std::string text = read_file(path);
  int64_t steps = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    ManifestLine line{text.substr(at, end - at), {}, std::ssize(lines) + 1};
    std::string where = str(path, ":", line.number);
    try {
      line.value = parse_json(line.text, where);
    } catch (const DataError& e) {
      throw BrokenManifest(e.what());
    }
    check<BrokenManifest>(line.value.is_object(), where, ": found no object");
    if (line.value.contains("step")) where += ": step " + dump_json(line.value["step"]);
    const Json previous = line.value.value(kPrevious, Json());
    check<BrokenManifest>(previous.is_string(), where, ": no `previous`");
    check<BrokenManifest>(
        lines.empty() || previous.get<std::string>() == sha256_hex(lines.back().text), where,
        ": `previous` is not the SHA-256 of the line before: one of the two was changed");
    check_order(line, steps, where);
    steps = line.is_step() ? line.step() : line.after();
    lines.push_back(std::move(line));
  }
  return lines;
}

std::map<std::string, std::string> images_of_line(const ManifestLine& line) {
  std::map<std::string, std::string> images;
  const auto found = line.value.find("images");
  if (found == line.value.end() || !found->is_object()) return images;
  for (const auto& [path, digest] : found->items())
    images[path] = digest.is_string() ? digest.get<std::string>() : std::string();
  return images;
}

Json weight_digests(const std::string& checkpoint) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") && !name.ends_with(".optimizer.safetensors") &&
        name != "task.safetensors")
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Json digests = Json::object();
  for (const fs::path& file : files) digests[file.stem().string()] = sha256_of_file(file.string());
  return digests;
}

void add_file_digests(const std::string& directory, const std::string& name, Json& to) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  WorkQueue queue({.threads = kThreads});
  std::vector<std::future<std::string>> digests;
  for (const fs::path& file : files)
    digests.push_back(queue.run([&file] { return sha256_of_file(file.string()); }));
  for (size_t i = 0; i < files.size(); ++i)
    to[name + "/" + files[i].lexically_relative(directory).string()] = digests[i].get();
}

Manifest::Manifest(std::string directory) : path_(std::move(directory) + kFile) {}

Manifest::~Manifest() {
  cancelled_ = true;
  for (const std::future<void>& one : computing_) one.wait();
  try {
    const std::lock_guard lock(mutex_);
    write_ready(std::numeric_limits<int64_t>::max());
  } catch (const Error&) {  // it was said when the run failed, or the run goes on from before it
  }
  if (file_ >= 0) ::close(file_);
}

void Manifest::open() {
  if (file_ >= 0) ::close(file_);
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  check(file_ >= 0, path_, ": cannot open: ", std::strerror(errno));
}

std::unique_ptr<Manifest> Manifest::begin(const std::string& directory, MakeInputs inputs,
                                          const std::string& previous) {
  std::unique_ptr<Manifest> made(new Manifest(directory));
  write_file_atomic(made->path_, "");
  made->open();
  made->before_last_ = previous;
  made->add_inputs(std::move(inputs));
  return made;
}

std::unique_ptr<Manifest> Manifest::resume(const std::string& directory, int64_t step) {
  std::unique_ptr<Manifest> made(new Manifest(directory));
  // Lines behind the step are cut whatever they are: a killed run may have left them half written.
  const std::string text = fs::exists(made->path_) ? read_file(made->path_) : "";
  std::string kept;
  bool found = false;
  for (size_t at = 0, end; !found && (end = text.find('\n', at)) != text.npos; at = end + 1) {
    const std::string begin = str("{\"step\": ", step, ",");
    found = text.compare(at, begin.size(), begin) == 0;
    kept = text.substr(0, end + 1);
  }
  if (!found) return nullptr;
  if (kept.size() != text.size()) write_file_atomic(made->path_, kept);
  const std::vector<ManifestLine> lines = read_manifest(made->path_);
  made->open();
  const ManifestLine& last = lines.back();
  made->last_ = {step, without_previous(last.text)};
  made->last_text_ = last.text;
  made->before_last_ = last.value[kPrevious].get<std::string>();
  made->end_ = static_cast<int64_t>(kept.size());
  made->last_at_ = made->end_ - std::ssize(last.text) - 1;
  for (const ManifestLine& line : lines) {
    if (!line.is_step()) made->inputs_ = line.value;
    for (const auto& [path, digest] : images_of_line(line)) made->images_[path] = digest;
  }
  return made;
}

void Manifest::add_inputs(MakeInputs inputs) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({0, "", true});
  Line* const line = &waiting_.back();  // a deque's elements stay where they are
  computing_.push_back(std::async(std::launch::async, [this, line, inputs = std::move(inputs)] {
    Json members;
    try {
      members = inputs(cancelled_);
    } catch (const std::exception& e) {  // a line that waits for ever would hold up checkpoints
      members = {{"error", e.what()}};
    }
    const std::lock_guard guard(mutex_);
    if (cancelled_) return;
    line->begin = members_of(members, "{");
    line->waits = false;
    changed_.notify_all();
  }));
}

void Manifest::add_step(const MetricsRow& row, const StepFiles& files) {
  MetricsRow kept(row.step());
  for (const char* name : {"loss", "grad_norm"})
    if (const MetricsRow::Value* value = row.find(name)) kept.set(name, *value);
  std::string begin = kept.json();
  begin.pop_back();
  if (!files.rollout.empty()) begin += ", \"rollout\": \"" + sha256_of_file(files.rollout) + "\"";
  Json images = Json::object();
  for (const auto& [path, digest] : files.images)
    if (std::exchange(images_[path], digest) != digest) images[path] = digest;
  if (!images.empty()) begin += ", \"images\": " + dump_json(images);
  const std::lock_guard lock(mutex_);
  waiting_.push_back({row.step(), std::move(begin)});
  write_ready(0);
}

void Manifest::await_weights(int64_t step) {
  const std::lock_guard lock(mutex_);
  // A save that failed does not come back.
  for (Line& line : waiting_)
    if (line.step > 0) line.waits = line.step == step;
}

void Manifest::complete(int64_t step, const Json& members) {
  std::unique_lock lock(mutex_);
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [step](const Line& line) { return line.step == step; });
  if (found == waiting_.end()) {
    if (last_.step == step) replace_last(members);
    return;
  }
  found->begin += members_of(members, ", ");
  found->waits = false;
  const auto is_written = [&] {
    write_ready(step);
    return last_.step >= step;
  };
  changed_.wait(lock, is_written);
  check(::fdatasync(file_) == 0, path_, ": cannot write: ", std::strerror(errno));
}

void Manifest::finish() {
  await_weights(0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    write_ready(std::numeric_limits<int64_t>::max());
    return waiting_.empty();
  });
}

// The newest line may yet have to wait for its weights: it stays, unless it is at most that of
// `through`.
void Manifest::write_ready(int64_t through) {
  while (!waiting_.empty() && !waiting_.front().waits &&
         (waiting_.size() > 1 || waiting_.front().step <= through)) {
    write(waiting_.front());
    last_ = std::move(waiting_.front());
    waiting_.pop_front();
  }
}

void Manifest::write(const Line& line) {
  const std::string previous = last_text_.empty() ? before_last_ : sha256_hex(last_text_);
  const std::string text = with_previous(line.begin, previous);
  write_all_at(file_, (text + "\n").data(), text.size() + 1, static_cast<uint64_t>(end_), path_);
  before_last_ = previous;
  last_text_ = text;
  last_at_ = end_;
  end_ += std::ssize(text) + 1;
}

// As a whole, so that a kill leaves the old line or the new one.
void Manifest::replace_last(const Json& members) {
  const Json present = parse_json(last_text_, path_);
  Json digests = Json::object();
  for (const char* key : kDigests) {
    const Json& from = members.contains(key) ? members : present;
    if (from.contains(key)) digests[key] = from[key];
    last_.begin = last_.begin.substr(0, last_.begin.find(str(", \"", key, "\": ")));
  }
  last_.begin += members_of(digests, ", ");
  const std::string text = with_previous(last_.begin, before_last_);
  if (text == last_text_) return;
  last_text_ = text;
  const std::string before = read_file(path_).substr(0, static_cast<size_t>(last_at_));
  write_file_atomic(path_, before + text + "\n");
  open();
  end_ = last_at_ + std::ssize(text) + 1;
}

}  // namespace temper::train
