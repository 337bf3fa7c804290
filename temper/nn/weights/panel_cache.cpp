#include "temper/nn/weights/panel_cache.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace temper::nn {
namespace {
thread_local int transient_panels = 0;
}

TransientPanels::TransientPanels() { ++transient_panels; }
TransientPanels::~TransientPanels() { --transient_panels; }

at::Tensor PanelCache::of(const ops::Weight& weight, uint64_t updates) {
  const std::lock_guard lock(mutex_);
  if (at::GradMode::is_enabled() || transient_panels > 0 ||
      weight.values.scalar_type() == at::kDouble) {
    panels_.reset();
    return {};
  }
  if (!panels_.defined() || updates_ != updates) {
    panels_ = ops::pack(weight);
    updates_ = updates;
  }
  return panels_;
}

void PanelCache::drop() {
  const std::lock_guard lock(mutex_);
  panels_.reset();
}

}  // namespace temper::nn
