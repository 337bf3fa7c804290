#include "temper/nn/weights/weight_versions.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"

namespace temper::nn {
namespace {

// Undefined of a quantized parameter, whose codes never change.
at::Tensor detached(const Parameter& parameter) {
  const at::Tensor& value = parameter.value();
  return value.defined() ? value.detach() : value;
}

at::Tensor cloned(const Parameter& parameter) {
  const at::Tensor value = detached(parameter);
  return value.defined() ? value.clone() : value;
}

}  // namespace

WeightVersions::Version::Version(const Parameter& like, at::Tensor value)
    : root(like.owner(), Module::Unlisted()), weight(root, "weight", like.shape(), like.init()) {
  weight.set_format(like.format());
  weight.set_arithmetic(like.arithmetic());
  weight.set_device(like.device());
  if (!like.has_value()) return;
  if (const auto codes = value.defined() ? nullptr : like.stored().quantized)
    weight.set_codes(codes);
  else
    weight.set_value(std::move(value));
}

void WeightVersions::replace(Parameter& own) {
  if (!base_) base_ = std::make_unique<Version>(own, detached(own));
  if (ops::is_quantized(own.format())) own.set_format(ops::WeightFormat::kFloat32);
  if (own.format() == ops::WeightFormat::kBFloat16)
    own.set_format(ops::WeightFormat::kRoundedBFloat16);
  if (own.has_value()) own.own();
  own.set_trainable(true);
}

void WeightVersions::train_rows(Parameter& own, Module& owner, std::vector<int64_t> ids) {
  check(!base_, "rows of a weight that an adapter brought whole");
  base_ = std::make_unique<Version>(own, detached(own));
  if (ops::is_quantized(own.format()))
    own.set_format(ops::WeightFormat::kFloat32);
  else if (own.has_value())
    own.own();
  rows_ = std::make_unique<TokenRows>(owner, own, std::move(ids));
}

void WeightVersions::restore(Parameter& own) {
  if (!base_) return;
  rows_.reset();
  own.set_trainable(false);
  if (const auto codes = base_->weight.stored().quantized) {
    own.set_codes(codes);
  } else {
    own.set_format(base_->weight.format());
    own.set_value(base_->weight.value());
  }
  base_.reset();
}

void WeightVersions::add_frozen_copy(const Parameter& own, int from) {
  const Parameter& original = at(own, from);
  const Parameter& base = base_ ? base_->weight : own;
  Copy copy;
  if (base_ || &original != &base)
    copy.version =
        std::make_unique<Version>(original.value().defined() ? own : original, cloned(original));
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
