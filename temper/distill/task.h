// Distillation: rows of SFT, or prompts that the student completes; the loss is
// alpha distill_loss + (1 - alpha) task_loss.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/distill/sampled_rows.h"
#include "temper/distill/strategy.h"
#include "temper/distill/teacher.h"
#include "temper/train/sft/sft.h"

namespace temper::distill {

// The strategy that the config names, for roles.teacher, which may be null. What it learns besides
// the student becomes a trainable, "projection".
std::unique_ptr<Strategy> make_strategy(const DistillConfig& config, train::Roles& roles);

// Parts of a run that have metrics of their own: groups of rows, a teacher with another tokenizer,
// a student that samples.
struct MeasuredParts {
  bool groups = true, crosses = true, samples = true;
};
// The declarations of the metrics of distillation.
std::vector<MetricInfo> distill_metrics(const MeasuredParts& parts = {});

class DistillTask : public train::SftTask {
 public:
  // Either `teachers` or `remote` is null.
  DistillTask(const DistillConfig& config, train::Roles& roles, dist::Group& group,
              train::Messages& messages, Strategy& strategy, const Teachers* teachers,
              RemoteTeacher* remote = nullptr);

  std::optional<train::StepPlan> next(int64_t step) override;
  train::Loss loss(const train::ForwardPass& pass) override;
  void describe_step(MetricsRow& row) override;
  bool evaluate(MetricsRow& row, const std::function<bool()>& stop) override;
  std::vector<MetricInfo> metrics() const override;

 protected:
  bool counts_every_token() const override;

 private:
  // The two losses of a pass, each with the count that it is the mean over. In training both have a
  // graph; in evaluation `task` is undefined where the pass has no targets.
  struct Losses {
    at::Tensor distill, task;
    double distill_count = 0, task_count = 0;
  };
  Losses losses(const train::ForwardPass& pass, bool training, const train::GroupOfUnit& group_of);
  // The share of each teacher in each value of distill_loss of a pass: [teacher][value].
  std::vector<std::vector<float>> shares(const train::ForwardPass& pass,
                                         const train::GroupOfUnit& group_of) const;
  void add_group_means(std::vector<train::Mean>& means, const train::ForwardPass& pass,
                       const Losses& losses, const train::GroupOfUnit& group_of) const;
  void combine(MetricsRow& row, const std::string& metric) const;
  void measure(size_t set, const train::ForwardPass& pass, const train::GroupOfUnit& group_of,
               train::EvaluationSums& sums);
  bool evaluate_sampled(MetricsRow& row, const std::function<bool()>& stop);

  const DistillConfig& distill_;
  train::Roles& roles_;
  Strategy& strategy_;
  const Teachers* teachers_;
  RemoteTeacher* remote_;
  std::unique_ptr<SampledRows> sampler_;  // null: rows are trained as they stand
  double distill_count_ = 0;              // sum of count() over the step
  bool crosses_ = false;                  // the teacher has another tokenizer
  double aligned_ = 0;                    // the step's targets that are in spans
};

}  // namespace temper::distill
