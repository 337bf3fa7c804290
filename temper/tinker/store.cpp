#include "temper/tinker/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/http/text.h"
#include "temper/serve/asked.h"

namespace temper::tinker {
namespace {

namespace fs = std::filesystem;

constexpr const char *kRecord = "/checkpoint.json", *kRunRecord = "/run.json";
constexpr const char* kHalfWritten = ".new-";  // begins the names of directories that are written

std::optional<double> expiry(std::optional<int64_t> ttl_seconds) {
  if (!ttl_seconds) return std::nullopt;
  return seconds_now() + static_cast<double>(*ttl_seconds);
}

int64_t bytes_in(const std::string& directory) {
  int64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

// Puts a directory in the place of another one, which then has the first one's name; false: there
// is none.
bool swap_directories(const std::string& one, const std::string& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
}

[[noreturn]] void not_found(const char* kind, const std::string& name) {
  throw serve::Refusal(404, str(kind, " `", http::for_log(name.substr(0, 4 * kLongestSafeName)),
                                "`: not found; training_runs and checkpoints list what there is"));
}

}  // namespace

double seconds_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

std::string time_text(double seconds) {
  const std::time_t whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  char text[40];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  const int micros = static_cast<int>((seconds - static_cast<double>(whole)) * 1e6);
  std::snprintf(text + length, sizeof text - length, ".%06dZ", micros);
  return text;
}

std::string default_state_directory() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state && *state) return std::string(state) + "/temper/tinker";
  const char* const home = std::getenv("HOME");
  check<ConfigError>(home && *home, "--state-dir: needed where the environment has no HOME");
  return std::string(home) + "/.local/state/temper/tinker";
}

Store::Store(const std::string& directory) : directory_(directory) {
  try {
    fs::create_directories(directory_ + "/runs");
  } catch (const fs::filesystem_error& e) {
    throw ConfigError(str("--state-dir ", directory_, ": ", e.code().message()));
  }
  lock_.reset(::open((directory_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  check<ConfigError>(lock_.get() >= 0, "--state-dir ", directory_, ": ", errno_text);
  check<ConfigError>(::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0, "--state-dir ", directory_,
                     ": another server uses it; stop that one, or give this one another directory");
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_ + "/runs"))
    if (entry.is_directory()) read_run(entry.path().filename());
}

void Store::read_run(const std::string& id) try {
  const Json json = read_json_file(directory_ + "/runs/" + id + kRunRecord);
  RunRecord run;
  run.id = id;
  run.session_id = json.value("session_id", "");
  run.owner = json.value("owner", "");
  run.base_model = json.at("base_model").get<std::string>();
  run.rank = json.at("rank").get<int64_t>();
  run.train_attn = json.value("train_attn", true);
  run.train_mlp = json.value("train_mlp", true);
  run.train_unembed = json.value("train_unembed", true);
  run.user_metadata = json.value("user_metadata", Json());
  run.created = run.last = json.value("created", 0.0);
  runs_[id] = run;
  for (const char* kind : {kTrainingWeights, kSamplerWeights}) read_checkpoints(id, kind);
} catch (const std::exception&) {
  // A run that was killed before its record was written has nothing to go on with.
}

void Store::read_checkpoints(const std::string& run, const std::string& kind) {
  const std::string parent = directory_ + "/runs/" + run + "/" + kind;
  if (!fs::exists(parent)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kHalfWritten)) {
      fs::remove_all(entry.path());
      continue;
    }
    try {
      const Json json = read_json_file(entry.path().string() + kRecord);
      Checkpoint c{run, kind, name};
      c.created = json.at("created").get<double>();
      if (json.contains("expires") && json["expires"].is_number())
        c.expires = json["expires"].get<double>();
      c.bytes = json.value("bytes", int64_t{0});
      c.is_public = json.value("public", false);
      c.user_metadata = json.value("user_metadata", Json());
      runs_[run].last = std::max(runs_[run].last, c.created);
      checkpoints_[c.path()] = c;
    } catch (const std::exception&) {
      // Somebody else's directory.
    }
  }
}

void Store::add_run(const RunRecord& run) {
  const std::string directory = directory_ + "/runs/" + run.id;
  fs::create_directories(directory);
  write_file_atomic(directory + kRunRecord, Json{{"session_id", run.session_id},
                                                 {"owner", run.owner},
                                                 {"base_model", run.base_model},
                                                 {"rank", run.rank},
                                                 {"train_attn", run.train_attn},
                                                 {"train_mlp", run.train_mlp},
                                                 {"train_unembed", run.train_unembed},
                                                 {"user_metadata", run.user_metadata},
                                                 {"created", run.created}}
                                                    .dump(2) +
                                                "\n");
  const std::lock_guard lock(mutex_);
  runs_[run.id] = run;
}

void Store::touch_run(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (const auto found = runs_.find(id); found != runs_.end()) found->second.last = seconds_now();
}

bool Store::is_owner(const std::string& owner, const std::string& run) const {
  const auto found = runs_.find(run);
  return found != runs_.end() && (found->second.owner.empty() || found->second.owner == owner);
}

RunRecord Store::run(const std::string& owner, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  if (!is_owner(owner, id)) not_found("training run", id);
  return runs_.at(id);
}

std::vector<RunRecord> Store::runs(const std::string& owner) const {
  std::vector<RunRecord> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, run] : runs_)
      if (is_owner(owner, id)) all.push_back(run);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const RunRecord& a, const RunRecord& b) { return a.created > b.created; });
  return all;
}

void Store::check_name(const Save& what) const {
  check<ConfigError>(is_safe_name(what.name), "path: found `",
                     what.name.substr(0, kLongestSafeName), "`, expected a name of at most ",
                     kLongestSafeName, " letters, digits, -, _ and ., which does not begin with .");
  const std::lock_guard lock(mutex_);
  check<ConfigError>(
      what.overwrite || !checkpoints_.contains(Checkpoint{what.run, what.kind, what.name}.path()),
      "path: the run has a checkpoint named ", what.name, " already; choose another name",
      what.kind == kTrainingWeights ? ", or set overwrite" : "");
}

Checkpoint Store::save(const Save& what, const std::function<void(const std::string&)>& write) {
  check_name(what);
  const std::string parent = directory_ + "/runs/" + what.run + "/" + what.kind;
  const std::string place = parent + "/" + what.name,
                    made = parent + "/" + kHalfWritten + what.name;
  fs::remove_all(made);
  fs::create_directories(made);
  Checkpoint c{what.run, what.kind, what.name};
  try {
    write(made);
    c.created = seconds_now();
    c.expires = expiry(what.ttl_seconds);
    c.bytes = bytes_in(made);
    c.user_metadata = what.user_metadata;
    write_record(c, made);
    if (swap_directories(made, place))
      fs::remove_all(made);
    else
      fs::rename(made, place);
  } catch (const fs::filesystem_error& e) {
    throw RunError(str(place, ": ", e.code().message()));
  } catch (...) {
    std::error_code none;
    fs::remove_all(made, none);
    throw;
  }
  const std::lock_guard lock(mutex_);
  checkpoints_[c.path()] = c;
  return c;
}

void Store::write_record(const Checkpoint& c, const std::string& directory) const {
  Json json{{"created", c.created},
            {"bytes", c.bytes},
            {"public", c.is_public},
            {"user_metadata", c.user_metadata}};
  if (c.expires) json["expires"] = *c.expires;
  write_file_atomic(directory + kRecord, json.dump(2) + "\n");
}

const Checkpoint& Store::known(const std::string& owner, const std::string& tinker_path,
                               bool to_read) const {
  const auto found = checkpoints_.find(tinker_path);
  if (found == checkpoints_.end() ||
      !(is_owner(owner, found->second.run) || (to_read && found->second.is_public)))
    not_found("checkpoint", tinker_path);
  return found->second;
}

Checkpoint& Store::own(const std::string& owner, const std::string& tinker_path) {
  return const_cast<Checkpoint&>(known(owner, tinker_path, false));
}

RunRecord Store::run_of(const std::string& owner, const std::string& tinker_path) const {
  const Checkpoint found = checkpoint(owner, tinker_path);
  const std::lock_guard lock(mutex_);
  return runs_.at(found.run);
}

Checkpoint Store::checkpoint(const std::string& owner, const std::string& tinker_path) const {
  const std::lock_guard lock(mutex_);
  const Checkpoint found = known(owner, tinker_path, true);
  if (found.expires && *found.expires < seconds_now()) not_found("expired checkpoint", tinker_path);
  return found;
}

std::string Store::directory_of(const Checkpoint& c) const {
  return directory_ + "/runs/" + c.run + "/" + c.kind + "/" + c.name;
}

std::vector<Checkpoint> Store::checkpoints(const std::string& owner, const std::string& run) const {
  std::vector<Checkpoint> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [path, c] : checkpoints_)
      if ((run.empty() || c.run == run) && is_owner(owner, c.run)) all.push_back(c);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Checkpoint& a, const Checkpoint& b) { return a.created > b.created; });
  return all;
}

void Store::erase(const Checkpoint& c) {
  // Renamed first, so that a half-removed one is not there after a crash.
  const std::string place = directory_of(c), away = directory_ + "/runs/" + c.run + "/" + c.kind +
                                                    "/" + kHalfWritten + c.name;
  std::error_code none;
  fs::remove_all(away, none);
  fs::rename(place, away, none);
  fs::remove_all(away, none);
}

void Store::remove(const std::string& owner, const std::string& tinker_path) {
  const std::lock_guard lock(mutex_);
  erase(own(owner, tinker_path));
  checkpoints_.erase(tinker_path);
}

void Store::set_expiry(const std::string& owner, const std::string& tinker_path,
                       std::optional<int64_t> ttl_seconds) {
  const std::lock_guard lock(mutex_);
  Checkpoint& c = own(owner, tinker_path);
  c.expires = expiry(ttl_seconds);
  write_record(c, directory_of(c));
}

void Store::set_public(const std::string& owner, const std::string& tinker_path, bool is_public) {
  const std::lock_guard lock(mutex_);
  Checkpoint& c = own(owner, tinker_path);
  c.is_public = is_public;
  write_record(c, directory_of(c));
}

void Store::sweep() {
  const std::lock_guard lock(mutex_);
  const double now = seconds_now();
  std::erase_if(checkpoints_, [&](const auto& one) {
    const bool expired = one.second.expires && *one.second.expires < now;
    if (expired) erase(one.second);
    return expired;
  });
}

}  // namespace temper::tinker
