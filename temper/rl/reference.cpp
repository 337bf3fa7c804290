#include "temper/rl/reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/models/load.h"

namespace temper::rl {
namespace {

void enable_adapters(models::CausalLM& model, bool enabled) {
  model.each_module([&](const std::string&, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) linear->adapter_enabled = enabled;
  });
}

}  // namespace

Reference::Reference(train::Policy& policy, const RunConfig& config) : policy_(policy) {
  if (!policy.lora) {
    const bool bfloat16 = config.model.dtype == ModelSection::Dtype::kBfloat16;
    frozen_ = models::load_model(config.model.path, bfloat16 ? at::kBFloat16 : at::kFloat);
  } else if (config.adapter.path) {
    policy.model->each_parameter([&](const std::string&, nn::Parameter& p) {
      if (p.trainable()) adapter_.push_back({&p, p.value().detach().clone()});
    });
  }
}

void Reference::swap_adapters() {
  for (Matrix& m : adapter_) {
    at::Tensor trained = m.parameter->value().detach().clone();
    m.parameter->value().detach().copy_(m.value);
    m.parameter->mark_updated();
    m.value = std::move(trained);
  }
}

void Reference::with(const std::function<void(models::CausalLM& model)>& body) {
  const at::NoGradGuard no_grad;
  const nn::TransientPanels packs_once;
  if (frozen_) return body(*frozen_);
  struct Restore {  // also when the body throws
    std::function<void()> undo;
    ~Restore() { undo(); }
  };
  if (adapter_.empty()) {
    enable_adapters(*policy_.model, false);
    const Restore restore{[&] { enable_adapters(*policy_.model, true); }};
    return body(*policy_.model);
  }
  swap_adapters();
  const Restore restore{[&] { swap_adapters(); }};
  body(*policy_.model);
}

}  // namespace temper::rl
