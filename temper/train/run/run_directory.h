// The directory of a run: its lock, resolved config, metrics, checkpoints, final model and report.
// Rank 0 writes; on other ranks a call that writes takes part in gathering what ranks share out,
// and does nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/metrics/report/report.h"
#include "temper/metrics/row.h"
#include "temper/train/config.h"
#include "temper/train/manifest/manifest.h"
#include "temper/train/messages.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run/checkpoint/checkpoint.h"
#include "temper/train/run/checkpoint/resumption.h"
#include "temper/train/run/checkpoint/saves.h"
#include "temper/train/run/input_files.h"
#include "temper/train/run/run_lock.h"
#include "temper/train/run/run_metrics.h"

namespace temper::train {

// The console of a run, and the request to stop it early.
struct RunHost {
  std::ostream& console;
  bool terminal = false;  // the console is a terminal: progress is a line that is redrawn
  // polled between steps: true ends the run after a checkpoint
  std::function<bool()> stop = [] { return false; };
  // Asked on every rank before the first and after each step, where the process makes a part of a
  // run: whether to save, and to end there, or whether the run is to end as if its plan did; null
  // elsewhere.
  enum class After { kGoOn, kSave, kSaveAndEnd, kEnd, kFinish };
  std::function<After(int64_t step)> after_step = {};
  // Called on every rank of a step that is made: before its passes ("weight"), with the gradients
  // of all ranks ("gradient"), and when they were applied ("updated"). Null: nobody looks.
  std::function<void(int64_t step, const char* when, const Trainables&)> on_tensors = {};
};

class RunDirectory : public Messages {
 public:
  // Makes the directory and locks it, so that no second run writes there. Throws ConfigError.
  RunDirectory(RunConfig& config, RunHost host, dist::Mesh mesh);
  ~RunDirectory() override;

  // Opens the sinks for a run of so many steps.
  void open_metrics(int64_t steps, std::vector<MetricInfo> infos);
  // files: of the row's step.
  void log(const MetricsRow& row, const StepFiles& files = {});
  void warn(const std::string& message);
  void warn_once(const std::string& what, const std::string& message) override;
  void note(const std::string& text) override;

  // What the run goes on from.
  const Resumption& resumption() const { return *resumption_; }
  // Writes the resolved config, reports what differs from the previous one and in the run's input
  // files, and cuts metrics back to the checkpoint's step (null: a fresh run). All ranks call it.
  // Throws ConfigError where frozen weights are not those that the checkpoint was trained on.
  void start(const Checkpoint* resumed);
  // Reports on the console that the run is complete, and what a changed config would have changed.
  void say_complete();

  // Saves step `step`, unless its checkpoint is there already, as Saves::write() does. Waits for
  // the save before.
  void save(int64_t step, const Trainables& trainables, const Json& values,
            const TensorMap& tensors, bool in_background);
  Saves& saves() { return saves_; }
  // Waits until the save in the background is whole, and warns where it failed.
  void settle_saves();
  // Called when step `step` + 1, or the weights of `step` themselves, were not finite: a checkpoint
  // of `step` is not resumed from any more, unless `resume` names it. Returns the end of the error
  // message, which says that and where the run goes on.
  std::string set_aside(int64_t step);
  // Writes the trained models (final/, NAME/), then the mark that the run is complete.
  void finish(int64_t step, const Trainables& trainables, const Json& values,
              const TensorMap& tensors);
  // Writes OUTPUT_DIR/NAME as a whole: made under another name, then renamed over the old one. On a
  // rank that does not write, `make` gets an empty name, and takes part in gathering only.
  void write(const std::string& name, const std::function<void(const std::string&)>& make) const;
  // Whether best/ has the best weights up to the checkpoint that the run goes on from; those of
  // another run are taken from it. All ranks call it, after start().
  bool take_best() const;
  // Whether the directory is not this run's any more: it, or a part of it, was removed, or another
  // run has its place. Rank 0 knows, after start(). A lock that alone was removed is made again.
  bool is_lost();
  // Where is_lost(): makes a directory that the state can be saved in, at the same path, or beside
  // it where another run has that; this is path() from now on. Returns what happened, and where the
  // state of step `step` will be. `together`: all ranks call it, and go there.
  std::string leave_lost(int64_t step, bool together);
  // Closes the metrics and writes report.html.
  void close(std::vector<std::pair<std::string, std::string>> summary,
             std::vector<Report::Table> tables);

  int rank() const { return mesh_.world->rank(); }
  bool is_writer() const { return mesh_.world->rank() == 0; }
  const std::string& path() const { return config_.output_dir; }
  const RunHost& host() const { return host_; }
  // The directory under path() that final/ is copied from, where it should have other weights than
  // the last ones (hooks.h, keep_best), and FINAL_FROM-NAME for other trainables; empty: the last
  // ones.
  std::string final_from;
  // Where final_from says so: the step that has those weights, -1 for not known, and why it was
  // chosen ("eval/loss 0.4245").
  int64_t final_step = -1;
  std::string final_reason;

 private:
  std::string id_of_run(const Checkpoint* resumed, bool own) const;
  void complete_manifest(int64_t step, const Trainables& trainables);

  RunConfig& config_;
  RunHost host_;
  dist::Mesh mesh_;
  Checkpoints checkpoints_;
  std::optional<RunLock> lock_;
  RunMetrics metrics_;
  std::optional<Resumption> resumption_;  // always, once the lock is held
  std::unique_ptr<InputHashes> inputs_;
  std::unique_ptr<Manifest> manifest_;  // null on other ranks, and where the directory was lost
  std::set<std::string> warned_;
  std::string begun_at_;  // the checkpoint that the run goes on from; "": none
  int64_t steps_ = 0;
  bool has_begun_ = false;  // start() was called, on the rank that writes
  bool moved_ = false;      // what an earlier run left was moved away
  bool finished_ = false;
  Saves saves_;  // last: the lock is held while it writes
};

}  // namespace temper::train
