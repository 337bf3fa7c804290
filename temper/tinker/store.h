// What a server keeps on disk: runs and their checkpoints, in one directory that one server at a
// time uses.
//
//   DIR/runs/RUN/run.json
//   DIR/runs/RUN/weights/NAME/          adapter_config.json, adapter_model.safetensors (PEFT),
//                                       optimizer.safetensors, checkpoint.json
//   DIR/runs/RUN/sampler_weights/NAME/  the same without the optimizer's state
//
// A checkpoint is there whole or not at all, whenever the process is killed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/file.h"
#include "temper/base/json.h"

namespace temper::tinker {

struct RunRecord {
  std::string id, session_id, base_model;
  std::string owner;  // whose it is (routes.h); empty: everybody's, of a server that kept none
  int64_t rank = 0;
  bool train_attn = true, train_mlp = true, train_unembed = true;
  Json user_metadata;            // an object, or null
  double created = 0, last = 0;  // seconds since 1970: when it was made, and its last request
};

struct Checkpoint {
  std::string run, kind, name;  // kind: kTrainingWeights or kSamplerWeights
  double created = 0;
  std::optional<double> expires;
  int64_t bytes = 0;
  bool is_public = false;
  Json user_metadata;

  std::string id() const { return kind + "/" + name; }
  std::string path() const { return "tinker://" + run + "/" + id(); }
};
inline constexpr const char *kTrainingWeights = "weights", *kSamplerWeights = "sampler_weights";

// ISO 8601, in UTC.
std::string time_text(double seconds);
double seconds_now();  // since 1970

// All members may be called from any thread. What is not there, and what is another owner's, is a
// serve::Refusal (404); a public checkpoint may be read by all.
class Store {
 public:
  // Reads what is there and removes what a killed process left half-written. Throws ConfigError
  // where the directory cannot be used, or another server uses it.
  explicit Store(const std::string& directory);

  void add_run(const RunRecord& run);
  void touch_run(const std::string& id);  // a request came
  RunRecord run(const std::string& owner, const std::string& id) const;
  std::vector<RunRecord> runs(const std::string& owner) const;  // newest first

  // Writes a checkpoint: `write` fills an empty directory. Throws ConfigError for a name that is no
  // file name, and for one that exists unless `overwrite`.
  struct Save {
    std::string run, kind, name;
    bool overwrite = false;
    std::optional<int64_t> ttl_seconds;
    Json user_metadata;
  };
  Checkpoint save(const Save& what, const std::function<void(const std::string&)>& write);
  // Throws ConfigError as save() would, before anything is computed.
  void check_name(const Save& what) const;

  Checkpoint checkpoint(const std::string& owner, const std::string& tinker_path) const;
  // The run of such a one.
  RunRecord run_of(const std::string& owner, const std::string& tinker_path) const;
  std::string directory_of(const Checkpoint& checkpoint) const;
  // Of a run, or of all of the owner's where it is empty; newest first.
  std::vector<Checkpoint> checkpoints(const std::string& owner, const std::string& run = {}) const;
  void remove(const std::string& owner, const std::string& tinker_path);
  void set_expiry(const std::string& owner, const std::string& tinker_path,
                  std::optional<int64_t> ttl_seconds);
  void set_public(const std::string& owner, const std::string& tinker_path, bool is_public);
  // Removes what has expired.
  void sweep();

 private:
  void read_run(const std::string& id);
  void read_checkpoints(const std::string& run, const std::string& kind);
  void erase(const Checkpoint& checkpoint);
  void write_record(const Checkpoint& checkpoint, const std::string& directory) const;
  // With the lock. to_read: a public one of another owner, too.
  bool is_owner(const std::string& owner, const std::string& run) const;
  const Checkpoint& known(const std::string& owner, const std::string& tinker_path,
                          bool to_read) const;
  Checkpoint& own(const std::string& owner, const std::string& tinker_path);

  const std::string directory_;
  FileDescriptor lock_;
  mutable std::mutex mutex_;
  std::map<std::string, RunRecord> runs_;          // by id
  std::map<std::string, Checkpoint> checkpoints_;  // by path
};

// Where a server keeps its state if nothing else is said: below $XDG_STATE_HOME or ~/.local/state.
std::string default_state_directory();

}  // namespace temper::tinker
