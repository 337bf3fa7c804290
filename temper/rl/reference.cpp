#include "temper/rl/reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/metrics/trace.h"
#include "temper/models/family.h"
#include "temper/models/files/tensors.h"
#include "temper/models/vision/tower.h"

namespace temper::rl {

// Begins the names of its tensors in a checkpoint.
static constexpr const char* kReferencePrefix = "reference.";

namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

// By name, without the vision tower's unless asked for.
Shapes shapes_of(models::CausalLM& model, bool of_tower) {
  Shapes shapes;
  model.each_parameter(
      [&](const std::string& name, nn::Parameter& p) { shapes[name] = p.whole_shape(); });
  if (models::Tower* const tower = model.tower(); tower && !of_tower)
    tower->each_parameter([&](const std::string& name, nn::Parameter&) {
      shapes.erase(str(models::kTowerParent, ".", name));
    });
  return shapes;
}

// Throws ConfigError unless a reference with these weights can follow the policy with those.
void check_follows(const RlConfig& config, const Shapes& reference, const Shapes& policy,
                   const std::string& directory) {
  check<ConfigError>(reference == policy, config.where("rl.reference"), ": the weights of ",
                     directory,
                     " have other names or shapes than those of model.path, so that it cannot "
                     "follow the policy (rl.reference_update_every)");
}

}  // namespace

train::FrozenSource reference_source(const RlConfig& config, const train::Policy& policy) {
  using Format = ops::WeightFormat;
  train::FrozenSource source =
      config.rl.reference
          ? train::named_source(*config.rl.reference, "rl.reference", config, policy)
          : train::start_source(policy, config);
  if (config.rl.reference_update_every == 0) return source;
  if (config.rl.reference) {  // before its weights are read
    const std::unique_ptr<models::CausalLM> named =
        models::make_model(models::HfConfig::load(source.directory));
    check_follows(config, shapes_of(*named, false), shapes_of(*policy.model, false),
                  source.directory);
  }
  // Mixed in float32, as the policy is updated.
  source.storage.file = false;
  if (source.storage.weights == Format::kBFloat16)
    source.storage.weights = Format::kRoundedBFloat16;
  return source;
}

MovingReference::MovingReference(const RlConfig& config, const train::Policy& policy,
                                 train::Frozen* reference)
    : rl_(config.rl), policy_(*policy.model) {
  if (reference && rl_.reference_update_every > 0) reference_ = reference->model();
  if (!reference_) return;
  if (policy_.tower() && reference_->vision) reference_->take_tower();
  check_follows(config, shapes_of(*reference_, true), shapes_of(policy_, true),
                reference->describe());
}

void MovingReference::after_update(int64_t step) const {
  if (!reference_ || step % rl_.reference_update_every != 0) return;
  const trace::Span span("update of the reference");
  const at::NoGradGuard no_grad;
  std::map<std::string, nn::Parameter*> followed;
  policy_.each_parameter([&](const std::string& name, nn::Parameter& p) { followed[name] = &p; });
  const double mix = rl_.reference_mix;
  reference_->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const at::Tensor now = followed.at(name)->whole_value();
    p.set_whole_value(mix == 1 ? now : now * mix + p.whole_value() * (1 - mix));
  });
}

void MovingReference::add_to(TensorMap& tensors) const {
  if (!reference_) return;
  const at::NoGradGuard no_grad;
  reference_->each_parameter([&](const std::string& name, nn::Parameter& p) {
    tensors[kReferencePrefix + name] = models::to_view(p.whole_value().clone());
  });
}

void MovingReference::restore(const TensorMap& tensors, const std::string& where) const {
  if (!reference_) return;
  const at::NoGradGuard no_grad;
  reference_->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const auto found = tensors.find(kReferencePrefix + name);
    check<DataError>(found != tensors.end() && found->second.shape == p.whole_shape(), where,
                     ": no reference model of this shape (`", name,
                     "`): the run so far had rl.reference_update_every: 0; resume: never or "
                     "another output_dir starts anew");
    p.set_whole_value(models::to_tensor(found->second, at::kFloat));
  });
}

}  // namespace temper::rl
