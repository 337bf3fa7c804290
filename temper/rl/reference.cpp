#include "temper/rl/reference.h"

#include <ATen/core/grad_mode.h>

#include "temper/models/load.h"

namespace temper::rl {

Reference::Reference(train::Policy& policy, const RunConfig& config) : policy_(policy) {
  if (!policy.lora) {
    const bool bfloat16 = config.model.dtype == ModelSection::Dtype::kBfloat16;
    frozen_ = models::load_model(config.model.path, bfloat16 ? at::kBFloat16 : at::kFloat);
  } else if (config.adapter.path) {
    adapter_ = models::freeze_adapter_copy(*policy.model);
  }
}

void Reference::with(const std::function<void(models::CausalLM& model, int adapter)>& body) {
  const at::NoGradGuard no_grad;
  const nn::TransientPanels packs_once;
  if (frozen_) return body(*frozen_, 0);
  body(*policy_.model, adapter_);
}

}  // namespace temper::rl
