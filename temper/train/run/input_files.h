// The input files of a run, as its checkpoints record them, so that changes between two starts of
// the run are noticed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/train/config.h"

namespace temper::train {

struct InputFile {
  std::string key;    // the config key: "data.train[0].path"
  std::string value;  // its value: "rows/*.jsonl"
  InputFiles kind = InputFiles::kNone;
  // The file's, without its folder: the same model may lie elsewhere. Where the key's value is a
  // pattern, with the folders that the pattern matches: a/rows.jsonl is not b/rows.jsonl.
  std::string name;
  std::string path;      // where it lies now
  int64_t bytes = 0;     // its size
  std::string stamp;     // device, inode and times of change: equal for an unchanged file
  bool weights = false;  // whether it holds a model's weights
  std::string hash;      // models::content_hash; "": not computed yet

  // "data.train[0].path (rows.jsonl)"
  std::string label() const;
};

// Visits every text of the config that names files, by its key ("data.train[0].path").
using VisitInput =
    std::function<void(const std::string& key, const std::string& text, InputFiles kind)>;
void each_input(RunConfig& config, const VisitInput& visit);
// The files or the directory that such a text names; they need not be there. Throws ConfigError,
// DataError where a pattern or id names none.
std::vector<std::string> named_paths(const std::string& text, InputFiles kind);

// The files that the config names, in its order: rows, chat templates, programs, the files of
// models and adapters. Unless `all`, weights of model.path and adapter.path are left out where
// nothing of them is read once a checkpoint is loaded (all weights train, and there is no
// reference).
std::vector<InputFile> input_files(RunConfig& config, bool all = false);

// The hashes of input files. Unknown ones are computed by a thread of the lowest priority, small
// files first, so that neither the start of a run nor its checkpoints wait for those of models.
class InputHashes {
 public:
  explicit InputHashes(std::vector<InputFile> files);
  ~InputHashes();
  InputHashes(const InputHashes&) = delete;
  InputHashes& operator=(const InputHashes&) = delete;

  // The record in a checkpoint: a list of {key, value, name, bytes, stamp, hash}. Waits for the
  // hashes of small files, which take a moment, at most some seconds. A large file that has none by
  // then is recorded with the hash "", and a later checkpoint has it.
  Json to_json();

 private:
  void compute(std::vector<size_t> order);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<InputFile> files_;  // the hashes are the thread's and guarded by the mutex
  size_t small_left_ = 0;         // small files whose hash is to be computed
  std::atomic<bool> cancelled_ = false;
  std::future<void> computing_;
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
