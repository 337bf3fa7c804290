#include "temper/check/memory/disk.h"

#include <algorithm>

#include "temper/check/memory/activations.h"
#include "temper/check/memory/saturated.h"
#include "temper/models/files/tokenizer_files.h"

namespace temper::checks {
namespace {

constexpr int64_t kStateBytes = 4000;  // state.json and headers
// Bytes per step of metrics.jsonl (supervised, RL), and of report.html: fixed and per step.
constexpr int64_t kRowBytes = 750, kRlRowBytes = 1400, kReportBytes = 60000, kReportRowBytes = 700;

// The bytes that saving a role writes: all of a model's weights, or the adapter's.
int64_t saved_bytes(const ModelRole& role, const ModelBytes& bytes) {
  if (role.adapters == 0) return kFloat * role.shape.parameters();
  return bytes.trained / std::max<int64_t>(1, role.trained_copies);
}

}  // namespace

int64_t DiskPlan::left_bytes() const {
  int64_t sum = 0;
  for (const auto& [name, bytes] : left) sum = saturated_sum(sum, bytes);
  return sum;
}

DiskPlan plan_disk(const RunShape& run, const train::RunConfig& config, int64_t steps) {
  const Ranks one;
  const train::TrainSection& t = config.train;
  const int64_t files = models::tokenizer_file_bytes(config.model.path);
  DiskPlan plan;
  int64_t trained = 0;  // directories of trained models
  const auto add = [&](const ModelRole& role) {
    const ModelBytes bytes = model_bytes(role, run.optimizer, one);
    plan.checkpoint += bytes.trained + bytes.optimizer;
    trained += saved_bytes(role, bytes) + files;
  };
  plan.checkpoint = kStateBytes + run.disk.batch_state;
  add(run.policy);
  for (const ModelRole& other : run.others)
    if (other.trains) add(other);
  trained += run.disk.merged;
  const int64_t final = trained * (t.keep_best.metric ? 2 : 1);
  const int64_t saves = t.save_every > 0 ? quotient_up(steps, t.save_every) : 1;
  const int64_t kept = std::min(saves, t.keep_checkpoints);
  // A run's last checkpoint is made between rollout batches.
  const int64_t last = plan.checkpoint - run.disk.batch_state;
  const bool samples = run.disk.rollouts > 0;
  const int64_t metrics = saturated_sum(
      kReportBytes,
      saturated_product(steps, (samples ? kRlRowBytes : kRowBytes) + kReportRowBytes));
  const int64_t checkpoints = saturated_sum(saturated_product(kept - 1, plan.checkpoint), last);
  plan.left = {{"checkpoints", t.keep_final_checkpoint ? checkpoints : kStateBytes},
               {"final", final},
               {"rollouts", run.disk.rollouts},
               {"metrics", metrics}};
  // One checkpoint more while it is written; final/ is written after the last checkpoint.
  plan.peak = saturated_sum(checkpoints, std::max(saves > kept ? plan.checkpoint : 0, final));
  for (const int64_t more : {run.disk.rollouts, run.disk.rollout_file, metrics})
    plan.peak = saturated_sum(plan.peak, more);
  return plan;
}

}  // namespace temper::checks
