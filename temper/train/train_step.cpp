#include "temper/train/train_step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/dist/peer_watch.h"
#include "temper/metrics/activity.h"
#include "temper/metrics/trace.h"
#include "temper/models/vision/encoder.h"
#include "temper/parallel/fsdp.h"
#include "temper/train/offload/disk_state.h"
#include "temper/train/optimizers/schedule.h"
#include "temper/train/ranks.h"
#include "temper/train/run/agreed_error.h"

namespace temper::train {

std::vector<MetricInfo> trainer_metrics() {
  return {
      {"loss", "", "loss",
       "the step's loss; in SFT the mean negative log-likelihood per supervised token, in nats",
       "SFT: falls; RL: near 0, not a measure of progress", true},
      {"loss/*", "", "terms of the loss", "a term of the loss, with its coefficient"},
      {"grad_norm", "", "gradient norm", "global L2 norm before clipping",
       "steady; spikes above 10x its usual value are a warning", true, "grad norm"},
      {"learning_rate", "", "learning rate", "learning rate of the step", "", true, "lr"},
      {"tokens_per_second", "tokens/s", "speed", "tokens of the step's rows per second", "", true,
       "tok/s"},
      {"step_seconds", "s", "time", "wall time of the step"},
      {"peak_memory_bytes", "bytes", "memory",
       "peak resident memory of the process so far, the largest of all ranks'",
       "below the machine's memory"},
      {"tokens", "tokens", "tokens", "tokens of the step's rows, each in full"},
      {"tokens_computed", "tokens", "tokens_computed",
       "tokens that went through the model, shared prefixes once"},
      {"supervised_tokens", "tokens", "supervised_tokens", "tokens that the loss counts",
       "above 0"},
      {"padding_tokens", "tokens", "padding_tokens", "always 0", "0"},
      {"images", "", "images", "images of the step's rows, a shared prompt's once"},
      {"image_tokens", "tokens", "image_tokens", "tokens that stand for these images"},
  };
}

std::vector<MetricInfo> TrainStep::metrics() const {
  std::vector<MetricInfo> infos = task_.metrics();
  for (MetricInfo& info : trainer_metrics()) infos.push_back(std::move(info));
  if (routers_)
    for (MetricInfo& info : RouterStep::metrics()) infos.push_back(std::move(info));
  return infos;
}

TrainStep::TrainStep(const TrainSection& section, uint64_t seed, int64_t steps, Roles& roles,
                     const dist::Mesh& mesh, Task& task)
    : section_(section),
      seed_(seed),
      steps_(steps),
      roles_(roles),
      mesh_(mesh),
      task_(task),
      memory_(section_) {
  const models::CausalLM* const policy = roles_.policy.model.get();
  const bool sparse = policy && policy->config().experts > 0;
  check_router_loss(section_.router_aux_loss, sparse);
  if (sparse) routers_.emplace(*roles_.policy.model, section_.router_aux_loss, mesh_);
  for (nn::Module* model : roles_.models()) parallel::shard(*model, mesh_.fsdp);
  for (const auto& trainable : roles_.trainables) trainable->shared_out = mesh_.model->size() > 1;
  if (!section_.offloads_inputs() && !section_.offloads_optimizer()) return;
  check(section_.offload_dir.has_value(), "train.offload without a directory");
  const std::string& directory = *section_.offload_dir;
  const std::string what = str("train.offload: ", directory);
  if (section_.offloads_inputs()) inputs_ = std::make_unique<DiskInputs>(directory, what);
  if (section_.offloads_optimizer())
    for (const auto& trainable : roles_.trainables)
      trainable->optimizer.store_state_in(std::make_unique<DiskState>(directory, what));
}

void TrainStep::clear_inputs() {
  if (inputs_) inputs_->clear();
}

// What several ranks look at together, once all have made the step's passes.
void TrainStep::check_memory(int64_t step) const {
  if (memory_.has_limit() && mesh_.world->all_reduce_max(memory_.exceeded() ? 1 : 0) > 0)
    memory_.fail(str("step ", step));
}

namespace {

// As messages write it: whether a NaN has a sign is up to the machine.
double unsigned_nan(double value) { return std::isnan(value) ? std::abs(value) : value; }

// The part of vision towers in a step: the passes read their features, and end() gives towers the
// gradients of these.
class TowerSteps {
 public:
  explicit TowerSteps(std::vector<models::Encoder*> encoders) : encoders_(std::move(encoders)) {
    for (models::Encoder* encoder : encoders_) encoder->begin_step();
  }
  ~TowerSteps() {
    for (models::Encoder* encoder : encoders_) encoder->abandon_step();
  }
  TowerSteps(const TowerSteps&) = delete;
  TowerSteps& operator=(const TowerSteps&) = delete;
  void end() {
    if (encoders_.empty()) return;
    const trace::Span span("backward of vision towers");
    for (models::Encoder* encoder : encoders_) encoder->end_step();
    encoders_.clear();
  }

 private:
  std::vector<models::Encoder*> encoders_;
};

}  // namespace

TrainStep::Passes TrainStep::forward_backward(int64_t step, StepPlan& plan) {
  if (on_tensors) on_tensors(step, "weight", roles_.trainables);
  Passes made;
  auto& [sums, tokens_computed] = made;
  TowerSteps towers(roles_.trained_encoders());
  // A step that an error ended may have left gradients.
  for (const auto& trainable : roles_.trainables) trainable->optimizer.zero_grad();
  for (ForwardPass& pass : plan.passes) {
    pass.dropout.seed = seed_;
    pass.dropout.step = static_cast<uint64_t>(step);
    pass.dropout.noise_alpha = section_.neftune_alpha;
    pass.inputs = inputs_.get();
  }
  if (routers_) routers_->begin(plan);
  Activity activity("training: pass", std::ssize(plan.passes));
  for (ForwardPass& pass : plan.passes) {
    activity.advance();
    dist::check_peers();  // passes may take minutes until the next sum over ranks
    LossSums nowhere;
    LossSums& counted = pass.shadow ? nowhere : sums;
    tokens_computed += static_cast<double>(pass.forest->num_tokens());
    if (!pass.trains() && !plan.every_token) continue;
    const at::Tensor total = [&] {
      const trace::Span span("forward");
      return counted.add(task_.loss(pass));
    }();
    const trace::Span span("backward");
    if (routers_) routers_->before_backward();
    if (total.defined())
      torch::autograd::backward({total}, {pass.shadow ? at::zeros_like(total) : at::Tensor()});
    if (routers_) routers_->after_backward();
    memory_.check(str("step ", step));
  }
  towers.end();
  check_memory(step);
  std::vector<double> computed{tokens_computed};
  mesh_.data_parallel->all_reduce_sum(computed);
  tokens_computed = computed[0];
  sums.reduce(*mesh_.data_parallel);
  if (routers_) routers_->end(sums);
  return made;
}

void TrainStep::update(int64_t step, const LossSums& sums, MetricsRow& row) {
  {
    const trace::Span span("sum of gradients over ranks");
    reduce_gradients(mesh_, roles_.trainables);
  }
  const double loss = sums.total();
  row.set("loss", loss);
  std::vector<double> norms;
  for (const auto& trainable : roles_.trainables) {
    norms.push_back(trainable->optimizer.grad_norm(mesh_));
    if (std::isfinite(loss) && std::isfinite(norms.back())) continue;
    for (const auto& other : roles_.trainables) other->optimizer.zero_grad();
    throw NotFinite(str(
        "step ", step, ": the loss is ", unsigned_nan(loss), " and the gradient's norm (",
        trainable->name, ") ", unsigned_nan(norms.back()),
        step == 1 ? "; nothing was trained yet: the model's weights may contain NaN or infinite "
                    "values, or overflow"
                  : "; check rows and rewards, or try a lower optimizer.learning_rate"));
  }
  if (on_tensors) on_tensors(step, "gradient", roles_.trainables);
  before_change();
  const trace::Span span("optimizer");
  for (size_t i = 0; i < norms.size(); ++i) {
    Trainable& trainable = *roles_.trainables[i];
    const double limit = trainable.settings.max_grad_norm;
    const bool frozen = step <= trainable.frozen_steps;
    const double rate = frozen ? 0 : learning_rate(trainable.settings, step, steps_);
    if (frozen)
      trainable.optimizer.zero_grad();
    else
      trainable.optimizer.step(rate, limit > 0 ? std::min(1.0, limit / (norms[i] + 1e-6)) : 1.0);
    const std::string prefix = i == 0 ? "" : trainable.name + "_";
    row.set(prefix + "grad_norm", norms[i]);
    row.set(prefix + "learning_rate", rate);
  }
  if (on_tensors) on_tensors(step, "updated", roles_.trainables);
}

void TrainStep::describe(const StepPlan& plan, const Passes& passes, double seconds,
                         MetricsRow& row) {
  const auto& [sums, tokens_computed] = passes;
  row.set("tokens", static_cast<int64_t>(plan.tokens));
  row.set("tokens_computed", static_cast<int64_t>(tokens_computed));
  row.set("supervised_tokens", static_cast<int64_t>(plan.supervised_tokens));
  row.set("padding_tokens", 0);
  if (plan.image_tokens > 0) {
    row.set("images", plan.images);
    row.set("image_tokens", plan.image_tokens);
  }
  const auto parts = std::count_if(sums.terms.begin(), sums.terms.end(),
                                   [](const LossSums::Sum& term) { return !term.separate; });
  for (const LossSums::Sum& term : sums.terms)
    if (term.separate || parts > 1)
      row.set(term.separate ? term.name : "loss/" + term.name, term.value());
  for (const LossSums::Sum& mean : sums.means) row.set(mean.name, mean.value());
  if (routers_) routers_->describe(row);
  task_.describe_step(row);
  row.set("step_seconds", seconds);
  row.set("tokens_per_second", plan.tokens / seconds);
  row.set(
      "peak_memory_bytes",
      static_cast<int64_t>(mesh_.world->all_reduce_max(static_cast<double>(peak_memory_bytes()))));
}

}  // namespace temper::train
