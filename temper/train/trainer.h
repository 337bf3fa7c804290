// The training loop of every verb. TrainStep computes a step of the passes and losses that a task
// brings, with the models and optimizers of the roles; the trainer resumes, evaluates, saves and
// stops. Hooks look on.
//
// A program may own the loop:
//
//   Trainer trainer(section, seed, roles, mesh, task);
//   while (trainer.step()) std::cout << trainer.row().json() << "\n";
//
// or leave it to run(), which resumes, logs, evaluates, saves and stops as the config says.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/train/config.h"
#include "temper/train/hooks.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run/run_directory.h"
#include "temper/train/task.h"
#include "temper/train/train_step.h"

namespace temper::train {

struct RunOutcome {
  bool interrupted = false;  // asked to stop; the same command continues the run
  int64_t steps = 0;         // number of the last step that was made
};

class Trainer {
 public:
  // Makes section.max_steps steps, or as many as the task plans. `seed` keys dropout and the noise
  // on embeddings. As TrainStep, it has the ranks share out the models, and opens files to offload
  // to.
  Trainer(TrainSection section, uint64_t seed, Roles& roles, const dist::Mesh& mesh, Task& task,
          std::vector<std::unique_ptr<Hook>> hooks = {});

  // One update: the task's passes, their gradients summed over passes and ranks, clipping, the
  // optimizers. False: the plan or the data have ended. Throws NotFinite (agreed_error.h) where
  // loss or gradient are no finite numbers; the weights are then those of the step before.
  bool step();
  int64_t steps_made() const { return step_; }
  int64_t planned_steps() const { return steps_; }
  // The metrics of the step made last.
  const MetricsRow& row() const { return row_; }

  // The whole run in its directory.
  RunOutcome run(RunDirectory& directory);

 private:
  std::optional<StepPlan> next();
  bool restore_or_start(RunDirectory& directory);
  void restore(const Checkpoint& checkpoint);
  void make_steps(RunDirectory& directory);
  void after_step(RunDirectory& directory);
  bool evaluate(RunDirectory& directory);
  void before_save();
  void check_finite() const;
  void save(RunDirectory& directory, bool in_background);
  void write_checkpoint(RunDirectory& directory, bool in_background);
  void tell_of_saves(RunDirectory& directory);
  void rescue(RunDirectory& directory);
  Json checkpoint_values(const TaskState& state) const;
  // What the ranks agree on after each step.
  struct Agreed {
    bool stop = false, save = false;  // a rank wants to stop; it is time for a checkpoint
    bool parts_written = false;       // of the checkpoint that is being written
    bool over_limit = false;          // a rank has had more memory than train.memory_limit
    bool lost = false;                // the directory is not this run's any more
  };
  Agreed agree(RunDirectory& directory);
  void leave_lost(RunDirectory& directory);
  void finish(RunDirectory& directory);
  std::vector<Report::Table> tables_of(const RunDirectory& directory) const;

  TrainSection section_;
  Roles& roles_;
  dist::Mesh mesh_;
  Task& task_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  std::map<std::string, std::string> image_files_;  // StepPlan's, of the last step
  int64_t steps_ = 0, step_ = 0, evaluated_ = -1;
  bool stopped_ = false, left_ = false;  // left_: the directory was lost, and another one is used
  double saved_at_ = 0;                  // time of the last checkpoint, seconds
  TrainStep train_step_;
  MetricsRow row_;
  std::vector<Report::Table> kept_tables_;  // the task's, as the weights for final/ were chosen
};

}  // namespace temper::train
