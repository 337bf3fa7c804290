// OUTPUT_DIR/manifest.jsonl: what a run was made from and what each of its steps gave, as a chain
// of lines that `temper verify` repeats:
//
//   {"rows": [..], "base": [..], .., "config": SHA, "program": {..}, "previous": ""}
//   {"step": 1, "loss": x, "grad_norm": x, "rollout": SHA, "weights": {"policy": SHA}, "previous":
//   SHA}
//
// A step's line has `images`, {PATH: SHA}, where its rows read image files for the first time;
// nothing is hashed for it, as reading a row's image takes its digest.
//
// `previous` is the SHA-256 of the line before, without its newline. The first line is that of the
// inputs (manifest_inputs.h). Another one stands where the run went on with other inputs or
// settings; its `after` is the number of steps before. Of a run that began at a checkpoint whose
// earlier steps are not its own (a fork, a checkpoint elsewhere), the first line has `after` too,
// with the digests of that checkpoint's weights. Checkpoints and the end add `weights` to the line
// of their step, the end also `final`: a digest for each file; and `ended_early` where the run
// would have gone on, and the sweep that it is a run of ended it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/metrics/row.h"

namespace temper::train {

inline constexpr const char* kEndedEarly = "ended_early";

// Files that a step made or read.
struct StepFiles {
  std::string rollout = {};                        // of its rollout batch, "" for none
  std::map<std::string, std::string> images = {};  // SHA-256 of each by its path
};

// A line of the file.
struct ManifestLine {
  std::string text;
  Json value;
  int64_t number = 0;  // from 1
  bool is_step() const { return value.contains("step"); }
  int64_t step() const { return is_step() ? value["step"].get<int64_t>() : 0; }
  // Of a line of inputs: the number of steps before it.
  int64_t after() const { return value.value("after", int64_t{0}); }
};

// A manifest that cannot be read, or whose chain is broken: "PATH:LINE: what differs".
struct BrokenManifest : DataError {
  using DataError::DataError;
};

// All whole lines, once each of them is known to follow the one before: `previous`, and the numbers
// of the steps. A last line without a newline, which a killed run was writing, is left out. Empty:
// there is no file. Throws BrokenManifest.
std::vector<ManifestLine> read_manifest(const std::string& path);

// `images` of a step's line: the SHA-256 by path.
std::map<std::string, std::string> images_of_line(const ManifestLine& line);

// The digests (SHA-256) of the weights in a checkpoint's directory: {"policy": SHA}.
Json weight_digests(const std::string& checkpoint);
// Of all files of the directory, as "NAME/FILE", added to `to`.
void add_file_digests(const std::string& directory, const std::string& name, Json& to);

// Writes the file. Lines are added between steps and written as soon as all that stands before them
// is known: digests of inputs and weights are computed on other threads meanwhile.
class Manifest {
 public:
  // The members of a line of inputs; called on a thread of its own. It ends early where `cancelled`
  // becomes true.
  using MakeInputs = std::function<Json(const std::atomic<bool>& cancelled)>;

  // A new chain. `after`: the steps before it; `previous`: what its first line continues.
  static std::unique_ptr<Manifest> begin(const std::string& directory, MakeInputs inputs,
                                         const std::string& previous = "");
  // Goes on behind the line of `step`; later lines are cut. Null: there is no such line. Throws
  // BrokenManifest.
  static std::unique_ptr<Manifest> resume(const std::string& directory, int64_t step);
  ~Manifest();
  Manifest(const Manifest&) = delete;
  Manifest& operator=(const Manifest&) = delete;

  // The last line of inputs before the place where a manifest was resumed.
  const Json& inputs() const { return inputs_; }
  // A line of inputs from here on.
  void add_inputs(MakeInputs inputs);
  // The line of a step. Of its images those stand there whose digests no line before has: each
  // image of the run once, unless it changed.
  void add_step(const MetricsRow& row, const StepFiles& files);
  // The step's line, the last one, waits for the digests of its weights.
  void await_weights(int64_t step);
  // Adds members to the line of a step, the last one or one that waits for them. Any thread calls
  // it. The line is on the disk when this returns. Throws RunError where it cannot be written.
  void complete(int64_t step, const Json& members);
  // Writes all lines, once all is known.
  void finish();

 private:
  struct Line {
    int64_t step = 0;   // 0: of inputs
    std::string begin;  // the line up to `previous`
    bool waits = false;
  };
  explicit Manifest(std::string directory);
  void write_ready(int64_t through);
  void write(const Line& line);
  void replace_last(const Json& members);
  void open();

  const std::string path_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int file_ = -1;
  std::deque<Line> waiting_;             // in order; guarded by the mutex, as what follows
  Line last_;                            // the last one in the file
  std::string last_text_, before_last_;  // its text, and its `previous`
  int64_t last_at_ = 0, end_ = 0;        // bytes: its place, and the file's end
  Json inputs_;
  std::map<std::string, std::string> images_;  // that lines have
  std::atomic<bool> cancelled_ = false;
  std::vector<std::future<void>> computing_;  // last: they use the others
};

}  // namespace temper::train
