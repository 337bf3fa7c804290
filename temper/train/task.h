// The interface of a training verb for the trainer: the next step's passes, the loss, its state. A
// new verb is a Task; the trainer does not depend on which one runs.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/json.h"
#include "temper/io/tensor_view.h"
#include "temper/metrics/report/report.h"
#include "temper/metrics/row.h"
#include "temper/train/forward_pass.h"
#include "temper/train/loss.h"

namespace temper::train {

// One step's work.
struct StepPlan {
  std::vector<ForwardPass> passes;  // this rank's
  // Numbers of the whole step, the same on all ranks.
  double tokens = 0;             // tokens of the step's rows, each row in full and once
  double supervised_tokens = 0;  // supervised tokens that the loss counts
  int64_t images = 0;            // of the step's units, a shared prompt's once
  int64_t image_tokens = 0;      // that stand for them
  std::map<std::string, std::string> image_files;  // SHA-256 of those that are files, by path
  // The loss reads more of a pass than its targets: one without targets is not passed over.
  bool every_token = false;

  // Adds the images of units, which are all of the step, to the three members above.
  void count_images(std::span<const PackUnit> units);
};

// A task's part of a checkpoint.
struct TaskState {
  Json values = Json::object();
  TensorMap tensors;
};

// Every member is called on all ranks in the same order, so that a task may use collectives.
class Task {
 public:
  virtual ~Task() = default;

  // Once, before the first step and after restore(), with the number of steps made before.
  virtual void begin(int64_t /*steps_made*/) {}
  // How many steps the run has, if no error ends it; `train.max_steps` bounds it.
  virtual int64_t planned_steps() const = 0;
  // The passes of step `step` (from 1), in the order in which steps are made. None: the data has
  // ended before the plan did.
  virtual std::optional<StepPlan> next(int64_t step) = 0;
  // The loss of one of this rank's passes; the trainer differentiates it before the next one.
  virtual Loss loss(const ForwardPass& pass) = 0;
  // After all passes, before the weights change. Throws where the update must not be made.
  virtual void before_update(int64_t /*step*/) {}
  // Adds metrics of the last step.
  virtual void describe_step(MetricsRow& /*row*/) {}
  // The file that the rollout batch left which began with that step, on the rank that writes; "":
  // none began, or it left none.
  virtual std::string rollout_file() const { return {}; }
  // Adds metrics that begin with "eval/", if there is something to evaluate on. `stop` is asked
  // between batches: true ends the evaluation without a row, and it is made again on resuming.
  virtual bool evaluate(MetricsRow& /*row*/, const std::function<bool()>& /*stop*/) {
    return false;
  }

  // The state after the last step whose describe_step() was called: restore() continues from there
  // with the same bits. What next() has started since is not in it.
  virtual TaskState state() const = 0;
  // `where` begins the message of a DataError.
  virtual void restore(const TaskState& state, const std::string& where) = 0;

  // The work of a step and of the whole run: "batches of up to 8 rows, from 20,000 rows, 190,123
  // tokens". The run prints it at its start; empty: nothing is printed.
  virtual std::string work() const { return {}; }
  // The declarations of the task's metrics, for the console's line and the report's charts.
  virtual std::vector<MetricInfo> metrics() const { return {}; }
  // Lines and tables of the report.
  virtual std::vector<std::pair<std::string, std::string>> summary() const { return {}; }
  virtual std::vector<Report::Table> tables() const { return {}; }
};

}  // namespace temper::train
