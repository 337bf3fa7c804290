#include "temper/nn/weights/weight_versions.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace temper::nn {

WeightVersions::Version::Version(const Parameter& like, at::Tensor value)
    : root(like.owner(), Module::Unlisted()), weight(root, "weight", like.shape(), like.init()) {
  weight.set_format(like.format());
  weight.set_arithmetic(like.arithmetic());
  weight.set_device(like.device());
  weight.set_value(std::move(value));
}

void WeightVersions::replace(Parameter& own) {
  if (!base_) base_ = std::make_unique<Version>(own, own.value().detach());
  if (own.format() == ops::WeightFormat::kBFloat16)
    own.set_format(ops::WeightFormat::kRoundedBFloat16);
  own.own();
  own.set_trainable(true);
}

void WeightVersions::restore(Parameter& own) {
  if (!base_) return;
  own.set_trainable(false);
  own.set_format(base_->weight.format());
  own.set_value(base_->weight.value());
  base_.reset();
}

void WeightVersions::add_frozen_copy(const Parameter& own, int from) {
  const Parameter& original = at(own, from);
  const Parameter& base = base_ ? base_->weight : own;
  Copy copy;
  if (base_ || &original != &base)
    copy.version = std::make_unique<Version>(own, original.value().detach().clone());
  auto place =
      std::find_if(copies_.begin(), copies_.end(), [](const Copy& c) { return c.removed; });
  if (place == copies_.end()) place = copies_.emplace(copies_.end());
  *place = std::move(copy);
}

void WeightVersions::remove_frozen_copy(int index) {
  copies_.at(static_cast<size_t>(index) - 1) = {nullptr, true};
}

const Parameter& WeightVersions::at(const Parameter& own, int adapter) const {
  const Parameter& base = base_ ? base_->weight : own;
  if (adapter == 0) return own;
  if (adapter < 0 || static_cast<size_t>(adapter) > copies_.size()) return base;
  const std::unique_ptr<Version>& copy = copies_[static_cast<size_t>(adapter) - 1].version;
  return copy ? copy->weight : base;
}

}  // namespace temper::nn
