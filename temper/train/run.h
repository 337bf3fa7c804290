// What every training verb's run has in common: ranks, policy, optimizer, metrics, checkpoints. A
// verb brings the rows, the loss and the state of its own that a checkpoint must hold.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/run_config.h"
#include "temper/data/loader.h"
#include "temper/dist/group.h"
#include "temper/metrics/report.h"
#include "temper/metrics/sink.h"
#include "temper/train/checkpoint.h"
#include "temper/train/optimizer.h"
#include "temper/train/policy.h"

namespace temper::train {

// Where a run shows itself, and who may end it early.
struct RunHost {
  std::ostream& console;
  bool terminal = false;       // the console is one: progress is a line that is redrawn
  std::function<bool()> stop;  // polled between steps: true ends the run after a checkpoint
};

struct RunOutcome {
  bool interrupted = false;  // asked to stop; the same command goes on
  int64_t steps = 0;         // the last one made
};

// Sums of one step over all of its micro-batches and ranks.
struct StepTotals {
  double loss = 0;             // already divided by its weight
  double tokens = 0;           // of the step's rows, each in full and once
  double tokens_computed = 0;  // through the model: a shared prompt once
  double supervised_tokens = 0;
};

// What the data section says to a loader of `batch_size` rows a step, and a loader's place in a
// checkpoint.
std::vector<data::SourceSpec> sources(const std::vector<DataSource>& section);
data::LoaderOptions loader_options(const RunConfig& config, int64_t batch_size);
data::LoaderState loader_state(const Json& checkpoint, const std::string& where);

double wall_seconds();  // steady
int64_t peak_memory_bytes();

class Run {
 public:
  // Joins the ranks, loads the policy and makes the optimizer. Throws ConfigError, DataError,
  // RunError.
  Run(const RunConfig& config, RunHost host);
  ~Run();

  // Opens the metrics and goes to where an earlier run of the output directory stopped: `restore`
  // is given the state that was saved, and the file that it stands in. False: that run was
  // complete, there is nothing to do.
  bool begin(int64_t steps,
             const std::function<void(const Json& state, const std::string& where)>& restore);

  // One update from the gradients that the ranks' backward passes left: sums over ranks, clips,
  // steps. Throws RunError where loss or norm is no number. The step's first names and values come
  // back, on every rank.
  MetricsRow update(int64_t step, const StepTotals& totals);
  // Adds speed and memory, and writes the row; `seconds` is the step's time. Rank 0 writes, others
  // do nothing.
  void log(MetricsRow row, const StepTotals& totals, double seconds);
  void log(const MetricsRow& row);
  void warn(const std::string& message);
  void note(const std::string& text);  // a line on the console

  // Whether any rank was asked to stop. Every rank must call it at the same place.
  bool should_stop();
  void save(int64_t step, Json state);
  // final/ and the checkpoint that says that the run is complete.
  void finish(int64_t step, Json state);
  // Closes the metrics and writes report.html.
  void close(std::vector<std::pair<std::string, std::string>> summary,
             std::vector<Report::Table> tables = {});

  bool writer() const { return group->rank() == 0; }
  int64_t first_step() const { return first_step_; }
  int64_t steps() const { return steps_; }
  // Whether an evaluation of this step is in the metrics already.
  bool evaluated(int64_t step) const { return evaluated_ == step; }
  void set_evaluated(int64_t step) { evaluated_ = step; }

  RunConfig config;  // with what the adapter's directory says
  RunHost host;
  std::shared_ptr<dist::Group> group;
  Policy policy;
  Optimizer optimizer;

 private:
  struct Lock;  // on the output directory, so that no second run writes there
  // The state of the checkpoint to go on from, if there is one: `where` is its directory.
  std::optional<Json> load_checkpoint(std::string& where);
  void point_out_changes();
  void reduce_gradients();

  std::unique_ptr<Lock> lock_;
  Checkpoints checkpoints_;
  std::unique_ptr<Metrics> metrics_;
  int64_t steps_ = 0, first_step_ = 1, evaluated_ = 0;
  int64_t saved_ = -1;  // the step of the last checkpoint that this process wrote
};

}  // namespace temper::train
