// The files that a run reads, as its checkpoints remember them: what another process changed
// between two starts of a run is noticed.
#pragma once

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/train/config.h"

namespace temper::train {

struct InputFile {
  std::string key;       // of the config: "data.train[0].path"
  std::string name;      // of the file, without its folder: the same model may lie elsewhere
  std::string path;      // where it lies now
  int64_t bytes = 0;     // its size
  std::string stamp;     // device, inode and times of change: who has the same has the same file
  bool weights = false;  // of a model
  std::string hash;      // models::content_hash; "": not computed yet

  // "data.train[0].path (rows.jsonl)"
  std::string label() const;
};

// What the config names, in its order: rows, chat templates, programs, the files of models and
// adapters. Weights of model.path and adapter.path are left out where nothing is read of them once
// a checkpoint is loaded (all weights train, and there is no reference).
std::vector<InputFile> input_files(RunConfig& config);

// Their hashes. Those that are not known are computed by a thread of the lowest priority, so that a
// start does not wait for it.
class InputHashes {
 public:
  explicit InputHashes(std::vector<InputFile> files);
  ~InputHashes();
  InputHashes(const InputHashes&) = delete;
  InputHashes& operator=(const InputHashes&) = delete;

  // What a checkpoint keeps: a list of {key, name, bytes, stamp, hash}. Waits some seconds for the
  // thread; what it has no hash of by then is left out, and a later checkpoint has it.
  Json to_json();

 private:
  std::vector<InputFile> files_;
  std::atomic<bool> cancelled_ = false;
  std::future<std::vector<std::string>> hashes_;
};

// What differs from what a checkpoint kept. Sets the hashes of files whose stamp is not the one
// that was kept, which takes the time of reading them once, and takes over those of the others.
struct ChangedInputs {
  std::vector<std::string> frozen;  // weights of model.path and adapter.path
  std::vector<std::string> others;
};
ChangedInputs compare_inputs(std::vector<InputFile>& files, const Json& kept);

}  // namespace temper::train
