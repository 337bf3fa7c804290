// The input files of a run, as its checkpoints record them, so that changes between two starts of
// the run are noticed.
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
  std::string key;       // the config key: "data.train[0].path"
  std::string name;      // the file's, without its folder: the same model may lie elsewhere
  std::string path;      // where it lies now
  int64_t bytes = 0;     // its size
  std::string stamp;     // device, inode and times of change: equal for an unchanged file
  bool weights = false;  // whether it holds a model's weights
  std::string hash;      // models::content_hash; "": not computed yet

  // "data.train[0].path (rows.jsonl)"
  std::string label() const;
};

// The files that the config names, in its order: rows, chat templates, programs, the files of
// models and adapters. Weights of model.path and adapter.path are left out where nothing of them is
// read once a checkpoint is loaded (all weights train, and there is no reference).
std::vector<InputFile> input_files(RunConfig& config);

// The hashes of input files. Unknown ones are computed by a thread of the lowest priority, so that
// the start of a run does not wait for them.
class InputHashes {
 public:
  explicit InputHashes(std::vector<InputFile> files);
  ~InputHashes();
  InputHashes(const InputHashes&) = delete;
  InputHashes& operator=(const InputHashes&) = delete;

  // The record in a checkpoint: a list of {key, name, bytes, stamp, hash}. Waits some seconds for
  // the thread; files without a hash by then are left out, and a later checkpoint has them.
  Json to_json();

 private:
  std::vector<InputFile> files_;
  std::atomic<bool> cancelled_ = false;
  std::future<std::vector<std::string>> hashes_;
};

// The labels of files that differ from a checkpoint's record.
struct ChangedInputs {
  std::vector<std::string> frozen;  // frozen weights of model.path and adapter.path
  std::vector<std::string> others;
};
// Compares `files` with `kept`, the record of a checkpoint. A file whose stamp has changed is
// hashed now, which takes as long as reading it once; the others get their hashes from the record.
ChangedInputs compare_inputs(std::vector<InputFile>& files, const Json& kept);

}  // namespace temper::train
