#include "temper/nn/weights/stored_value.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace temper::nn {
namespace {

thread_local int transient_panels = 0;

}  // namespace

void StoredValue::set(const at::Tensor& value) {
  if (ops::is_quantized(format_)) return set_codes(ops::quantize(value, format_, device_));
  codes_.reset();
  const at::ScalarType kept = format_ == ops::WeightFormat::kBFloat16 ? at::kBFloat16
                              : value.scalar_type() == at::kDouble    ? at::kDouble
                                                                      : at::kFloat;
  tensor_ = value.to(device_, kept);
}

void StoredValue::set_codes(std::shared_ptr<const ops::QuantizedWeight> codes) {
  format_ = codes->format;
  codes_ = std::move(codes);
  tensor_.reset();
}

ops::Weight StoredValue::weight() const {
  ops::Weight weight = codes_ ? ops::Weight(codes_) : ops::Weight(tensor_);
  if (!codes_ && format_ == ops::WeightFormat::kRoundedBFloat16 &&
      tensor_.scalar_type() == at::kFloat)
    weight.format = format_;
  weight.arithmetic = arithmetic_;
  return weight;
}

at::Tensor StoredValue::float_value() const {
  return format_ == ops::WeightFormat::kRoundedBFloat16 ? tensor_ : ops::read(weight());
}

bool keeps_panels() { return !at::GradMode::is_enabled() && transient_panels == 0; }

TransientPanels::TransientPanels() { ++transient_panels; }
TransientPanels::~TransientPanels() { --transient_panels; }

at::Tensor PanelCache::of(const ops::Weight& weight, uint64_t updates) {
  const std::lock_guard lock(mutex_);
  if (!keeps_panels() || weight.values.scalar_type() == at::kDouble) {
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
