// What a run goes on from: the choice of a checkpoint, and what has changed since it was written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/train/config.h"
#include "temper/train/messages.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run/checkpoint/checkpoint.h"
#include "temper/train/run/input_files.h"

namespace temper::train {

class Resumption {
 public:
  // All but the id outlive it. `run_id`: of the run of the directory (RunLock), "" on ranks that do
  // not write. Nothing is written, and no lock is needed: `temper check` asks as the run does.
  Resumption(RunConfig& config, const dist::Mesh& mesh, const Checkpoints& checkpoints,
             std::string run_id, Messages& messages)
      : config_(config),
        mesh_(mesh),
        checkpoints_(checkpoints),
        run_id_(std::move(run_id)),
        messages_(messages) {}

  // The checkpoint that `resume` names, or the newest valid one, whose files have the hashes that
  // were written. `read` reads it and throws DataError where it is damaged. Damaged ones are
  // skipped with a warning; where none is valid, the newest one's error is thrown. nullopt: there
  // is none, or resume is never. All ranks call it. Throws ConfigError for one of another optimizer
  // or run.
  using Read = std::function<Checkpoint(const std::string& directory)>;
  std::optional<Checkpoint> choose(const Read& read) const;
  // The same, whose weights and moments are set; `restore` reads the rest of it.
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
  // The same of the input files, on this rank alone; `metrics`: of metrics.jsonl, too.
  struct Compared {
    std::vector<InputFile> files;
    bool changed = false;
  };
  Compared compare_inputs(const Checkpoint* resumed, bool metrics) const;
  // Warns of settings and of a backend that differ from before.
  void warn_of_changes(const Checkpoint& resumed) const;

 private:
  bool is_writer() const { return mesh_.world->rank() == 0; }
  void warn(const std::string& message) const { messages_.warn_once(message, message); }
  void check_verb(const std::string& checkpoint) const;
  void check_optimizer(const std::string& checkpoint) const;
  void check_same_run(const std::string& checkpoint, const std::string& run_id) const;
  void check_whole(const std::string& directory) const;
  std::vector<std::string> candidates() const;

  RunConfig& config_;
  const dist::Mesh& mesh_;
  const Checkpoints& checkpoints_;
  std::string run_id_;
  Messages& messages_;
};

}  // namespace temper::train
