// What a step computes: gradients of the task's loss, the update of the weights, and its metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/metrics/metric_info.h"
#include "temper/metrics/row.h"
#include "temper/train/config.h"
#include "temper/train/loss.h"
#include "temper/train/offload/disk_inputs.h"
#include "temper/train/roles/roles.h"
#include "temper/train/router_step.h"
#include "temper/train/run/memory_limit.h"
#include "temper/train/task.h"

namespace temper::train {

// Steps are numbered from 1. All ranks call the members in the same order.
class TrainStep {
 public:
  // For a run of `steps` steps. The others outlive it. Where the mesh says so, the ranks share out
  // the models of the roles from here on. What the section offloads goes to section.offload_dir;
  // throws RunError where no file can be made there.
  TrainStep(const TrainSection& section, uint64_t seed, int64_t steps, Roles& roles,
            const dist::Mesh& mesh, Task& task);
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  struct Passes {
    LossSums sums;               // of the whole step
    double tokens_computed = 0;  // by all ranks
  };
  // Leaves this rank's gradients of the plan's passes, which get the step's dropout.
  Passes forward_backward(int64_t step, StepPlan& plan);
  // Sums the gradients over ranks, clips them and makes the optimizers' step. Throws NotFinite
  // (agreed_error.h) where loss or gradient are no finite numbers; the weights are then as before.
  void update(int64_t step, const LossSums& sums, MetricsRow& row);
  // Adds the metrics of a step that was made in so many seconds.
  void describe(const StepPlan& plan, const Passes& passes, double seconds, MetricsRow& row);

  // Declarations of the metrics that rows have of it and of the task.
  std::vector<MetricInfo> metrics() const;
  const MemoryWatch& memory() const { return memory_; }
  // Gives back the disk's space of offloaded inputs, after an error: to make room for a checkpoint.
  void clear_inputs();

  // Called before weights and optimizer state change.
  std::function<void()> before_change = [] {};
  // As RunHost::on_tensors.
  std::function<void(int64_t step, const char* when, const Trainables&)> on_tensors;

 private:
  void check_memory(int64_t step) const;

  const TrainSection& section_;
  const uint64_t seed_;
  const int64_t steps_;
  Roles& roles_;
  const dist::Mesh& mesh_;
  Task& task_;
  std::unique_ptr<DiskInputs> inputs_;  // null: inputs of blocks stay in memory
  MemoryWatch memory_;
  std::optional<RouterStep> routers_;  // for a policy that is a mixture of experts
};

// The metrics of the trainer itself, for the console and the report.
std::vector<MetricInfo> trainer_metrics();

}  // namespace temper::train
