// What a run goes on from: the choice of a checkpoint, and what has changed since it was written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/train/config.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run/checkpoint/checkpoint.h"
#include "temper/train/run/input_files.h"
#include "temper/train/run/run_lock.h"
#include "temper/train/run/run_metrics.h"

namespace temper::train {

class Resumption {
 public:
  // All of them outlive it. `lock`: of the run's directory, null on ranks that do not write.
  Resumption(RunConfig& config, const dist::Mesh& mesh, const Checkpoints& checkpoints,
             const RunLock* lock, const RunMetrics& metrics)
      : config_(config), mesh_(mesh), checkpoints_(checkpoints), lock_(lock), metrics_(metrics) {}

  // The checkpoint that `resume` names, or the newest valid one, whose files have the hashes that
  // were written. `restore` reads the rest of it and throws DataError where it is damaged. Damaged
  // ones are skipped with a warning; where none is valid, the newest one's error is thrown.
  // nullopt: there is none, or resume is never. All ranks call it.
  std::optional<Checkpoint> load(const Trainables& trainables,
                                 const std::function<void(const Checkpoint&)>& restore) const;
  // Whether the checkpoint is the end of a run of so many steps.
  bool is_complete(const Checkpoint& checkpoint, int64_t steps) const;
  // True where the directory's run is complete and kept no checkpoint
  // (train.keep_final_checkpoint). Throws ConfigError where the run would have to continue.
  bool is_complete_without_checkpoint(int64_t steps) const;

  struct Inputs {
    std::unique_ptr<InputHashes> hashes;  // null on ranks that do not write
    bool changed = false;                 // since the checkpoint
  };
  // Compares the run's input files with those of the checkpoint (null: a fresh run), and warns of
  // changes. All ranks call it. Throws ConfigError on all of them where frozen weights are not
  // those that the checkpoint was trained on, or where metrics.jsonl cannot be gone on with.
  Inputs check_inputs(const Checkpoint* resumed) const;
  // Warns of settings and of a backend that differ from before.
  void warn_of_changes(const Checkpoint& resumed) const;

 private:
  bool is_writer() const { return lock_ != nullptr; }
  Checkpoint load_from(const std::string& directory, const Trainables& trainables) const;
  void check_optimizer(const std::string& checkpoint) const;
  void check_same_run(const std::string& checkpoint, const std::string& run_id) const;
  void check_whole(const std::string& directory) const;
  std::vector<std::string> candidates() const;
  std::string compare_files(const Checkpoint* resumed, Inputs& inputs) const;

  RunConfig& config_;
  const dist::Mesh& mesh_;
  const Checkpoints& checkpoints_;
  const RunLock* lock_;
  const RunMetrics& metrics_;
};

}  // namespace temper::train
