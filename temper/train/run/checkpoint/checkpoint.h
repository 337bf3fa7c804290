// Checkpoints of a run: everything needed to go on to the same bits as if nothing had happened.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/dist/mesh.h"
#include "temper/train/roles/roles.h"

namespace temper::train {

class Snapshot;

// The contents of a checkpoint besides weights and moments.
struct Checkpoint {
  std::string directory;
  int64_t step = 0;
  bool complete = false;
  Json values;        // JSON values of the trainer and the task
  TensorMap tensors;  // tensors of the task
};

// OUTPUT_DIR/checkpoints/step-N: NAME.safetensors and NAME.optimizer.safetensors of each trainable,
// task.safetensors, and state.json, which has a hash of each of the others as they were written and
// one of itself. A checkpoint is written under another name and renamed when it is complete, so
// that a run that is killed at any moment leaves the old ones. Ranks that hold parts of the trained
// weights write side by side into the same files, each its own part; the files are those of a
// single rank. Where not all of them see the directory, or hosts share it by a file system on which
// their writes to one file could undo each other's (NFS, SMB, FUSE), rank 0 gathers one tensor
// after the other and writes.
class Checkpoints {
 public:
  Checkpoints(std::string output_dir, int64_t keep);

  // Called with the directory of each checkpoint, on the thread that writes it, before it gets its
  // name: an error keeps it from getting that.
  std::function<void(int64_t step, const std::string& directory)> before_commit;

  // Afterwards checkpoints of later steps, which another run left here, are gone, and of the others
  // all but the last `keep`. Where ranks share out trained weights all of them call this, else rank
  // 0 alone. Returns whether they wrote side by side. Throws RunError, also on ranks where only
  // another one failed.
  bool save(int64_t step, const Trainables& trainables, const Json& values,
            const TensorMap& tensors, const dist::Mesh& mesh = {}) const;
  // A save in two parts, which any thread of this process may run, once: first `parts` on every
  // rank, where they write side by side; when all of them have returned, `finish`. Either may be
  // empty. Until `finish` has returned the older checkpoints are as they were.
  struct Writing {
    std::function<void()> parts, finish;
    bool together = false;  // ranks write side by side
    // Copies what is not written yet: called before the weights or moments change. Null: nothing
    // has to be copied.
    std::shared_ptr<Snapshot> snapshot = {};
  };
  // Returns what writes the state as it is now; called as save() is, and makes the collectives.
  // Where ranks share out trained weights, and rank 0 alone may write, it writes them here: their
  // whole is too large for one rank. `copies`: false: the functions read the weights and moments
  // themselves, and run before those change.
  Writing begin_save(int64_t step, const Trainables& trainables, const Json& values,
                     const TensorMap& tensors, const dist::Mesh& mesh, bool copies) const;
  // Writes `complete` into the checkpoint of a step that was saved.
  void mark_complete(int64_t step) const;
  // Marks the checkpoint of a step, if there is one, as set aside: the step after it gave no finite
  // gradient, so it is not resumed from.
  void set_aside(int64_t step) const;
  // True for a checkpoint that was set aside. Throws DataError where its state cannot be read.
  static bool is_set_aside(const std::string& directory);
  // For a complete run: removes all checkpoints, leaving only step-N's state.json as the record
  // that the run is complete.
  void keep_record_alone(int64_t step) const;
  // is_record_alone(): true for the directory of such a record; record(): its content.
  static bool is_record_alone(const std::string& directory);
  static Checkpoint record(const std::string& directory);
  // "; the newest checkpoint of DIR is ...", where the path is in or of a run's directory and names
  // none of its checkpoints. Empty: nobody knows.
  static std::string newest_hint(const std::string& path);
  // Directories of the checkpoints, newest first; of a fork the last one is that which it began at.
  std::vector<std::string> all() const;
  // Whether the directory is one of these.
  bool has(const std::string& directory) const;
  // Makes OUTPUT_DIR/fork/step-N of another run's checkpoint: what a run here goes on from until it
  // has checkpoints of its own. `line`: the other manifest's line of that step, "" for none.
  void begin_at(const std::string& checkpoint, const std::string& line) const;
  // The checkpoint that the run began at; "": it is no fork.
  std::string fork_point() const;
  // The verb whose run wrote it; null where it does not say.
  static Json verb_of(const std::string& directory);
  // When its run was first started (kBegun); "" where it does not say.
  static std::string begin_of(const std::string& directory);
  // optimizer.name of its run; "" where neither it nor the config.yaml of its run says.
  static std::string optimizer_of(const std::string& directory);
  // The id of its run (run_lock.h); "" where it does not say.
  static std::string run_of(const std::string& directory);
  // Whether its run draws and holds out rows as DataSection::earlier_rules says.
  static bool has_earlier_rules(const std::string& directory);
  // Keys of Checkpoint::values: when the run began; the step that was evaluated last, -1 for none;
  // the run's id; optimizer.name; by which of its rules rows are drawn and held out (missing:
  // DataSection::earlier_rules).
  static constexpr const char *kBegun = "begun", *kEvaluated = "evaluated", *kRun = "run",
                              *kOptimizer = "optimizer", *kRowRules = "row_rules";
  static constexpr int kRowRulesNow = 2;
  // Of the checkpoint that a fork began at: the SHA-256 of the manifest's line, where it has one.
  static constexpr const char* kManifestLine = "manifest_line";
  // The number of rows of steps in metrics.jsonl.
  static constexpr const char* kMetricsRows = "metrics_rows";
  // InputHashes::to_json() of what the run read; ops::Backend::name().
  static constexpr const char *kInputs = "inputs", *kBackend = "backend";
  // Throws DataError where a file has another size or hash than was written. Returns false for a
  // checkpoint of an older version, which has no hashes.
  static bool check_files(const std::string& directory);
  // Throws DataError unless there are weights and moments with the names and shapes of those of the
  // trainables, whose parameters need no values.
  static Checkpoint check_trained(const std::string& directory, const Trainables& trainables);
  // Sets them. Throws DataError; the trainables are then as they were.
  static Checkpoint load(const std::string& directory, const Trainables& trainables);

 private:
  void finish(const std::string& temporary, int64_t step, const TensorMap& tensors, Json state,
              int threads) const;
  std::string output_dir_;
  int64_t keep_;
};

}  // namespace temper::train
