// Routers of a mixture of experts while a step is computed: how evenly they choose, and the
// load-balancing loss (nn::RouterWatch).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/metrics/metric_info.h"
#include "temper/metrics/row.h"
#include "temper/nn/router.h"
#include "temper/train/loss.h"
#include "temper/train/task.h"

namespace temper::train {

// Whether a policy that is a mixture of experts (`sparse`) or not may have the loss of
// train.router_aux_loss. Throws ConfigError.
void check_router_loss(const std::optional<double>& coefficient, bool sparse);

class RouterStep {
 public:
  // `coefficient`: of the loss; none: choices are counted alone. Both outlive the object.
  RouterStep(models::CausalLM& model, std::optional<double> coefficient, const dist::Mesh& mesh);

  // Before the step's passes, whose dropout is set. The loss needs the choices of all of the step's
  // tokens before the first backward pass: a single pass of a single rank gives them itself; else
  // each pass is made once more, without gradients, to count them.
  void begin(StepPlan& plan);
  // Around the backward pass of each.
  void before_backward();
  void after_backward() { watch_.counting = true; }
  // After the last one, of sums that were reduced: adds the loss as a term.
  void end(LossSums& sums);
  void describe(MetricsRow& row) const;
  static std::vector<MetricInfo> metrics();

 private:
  void count(StepPlan& plan);
  void reduce();
  void weigh();

  models::CausalLM& model_;
  const std::optional<double> coefficient_;
  const dist::Mesh& mesh_;
  const size_t layers_, experts_, chosen_;
  nn::RouterWatch watch_;
  bool counted_ = false;  // the choices of the whole step are known
  // Sums of the step over all ranks: choices_ and probability_ by layer and expert, tokens_ by
  // layer.
  std::vector<double> choices_, probability_, tokens_;
  double value_ = 0;  // value of the loss, without its coefficient
};

}  // namespace temper::train
