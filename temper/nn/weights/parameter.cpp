#include "temper/nn/weights/parameter.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/nn/module.h"
#include "temper/nn/unit.h"

namespace temper::nn {

Parameter::Parameter(Module& owner, std::string name, std::vector<int64_t> shape, Init init)
    : owner_(owner), shape_(std::move(shape)), init_(init) {
  owner.children_.push_back({std::move(name), nullptr, this});
}

void Parameter::set_format(ops::WeightFormat format) {
  if (format == stored_.format() || (ops::is_quantized(format) && is_elsewhere())) return;
  check(!ops::is_quantized(format) || shape_.size() == 2, "only matrices are quantized");
  const bool had = has_value();
  const at::Tensor value = had ? float_value() : at::Tensor();
  stored_.set_format(format);
  if (had) set_value(value);
}

void Parameter::set_device(at::Device device) {
  if (device == stored_.device()) return;
  const at::Tensor value = has_value() ? float_value() : at::Tensor();
  stored_.set_device(device);
  if (value.defined()) set_value(value);
}

void Parameter::split(std::shared_ptr<dist::Group> tensor, std::vector<int64_t> joined) {
  check(divides_ && !has_value() && !part_.placement,
        "a parameter that is divided is split before it has a value");
  const int64_t dim = *divides_;
  auto placement = std::make_shared<Placement>();
  placement->whole_shape = shape_;
  placement->dim = dim;
  const int64_t extent = shape_[static_cast<size_t>(dim)], ranks = tensor->size();
  check<ConfigError>(extent % ranks == 0, extent, " is not divisible by ", ranks);
  for (const int64_t one : joined)
    check<ConfigError>(one % ranks == 0, one, " is not divisible by ", ranks);
  placement->joined = std::move(joined);
  shape_[static_cast<size_t>(dim)] = extent / ranks;
  placement->tensor = std::move(tensor);
  part_.placement = std::move(placement);
}

void Parameter::give_to(int owner, std::shared_ptr<dist::Group> tensor) {
  check(!has_value() && !part_.placement, "a parameter is given to a rank before it has a value");
  auto placement = std::make_shared<Placement>();
  placement->whole_shape = shape_;
  placement->tensor = std::move(tensor);
  placement->owner = owner;
  if (placement->elsewhere()) {
    shape_[0] = 0;
    if (ops::is_quantized(format())) stored_.set_format(ops::WeightFormat::kFloat32);
  }
  part_.placement = std::move(placement);
}

void Parameter::shard(const ShardUnit& unit, Placement placement, at::Tensor kept,
                      at::Tensor value) {
  placement.whole_shape = whole_shape();
  if (part_.placement) {
    placement.tensor = part_.placement->tensor;
    placement.dim = part_.placement->dim;
    placement.owner = part_.placement->owner;
    placement.joined = part_.placement->joined;
  }
  part_.placement = std::make_shared<Placement>(std::move(placement));
  part_.unit = &unit;
  part_.kept = std::move(kept);
  stored_.set_tensor(std::move(value));
  set_trainable(trainable_);
  release();
}

void Parameter::shard(const ShardUnit& unit, std::shared_ptr<const ops::QuantizedWeight> codes) {
  stored_.set_codes(std::move(codes));
  part_.unit = &unit;
}

void Parameter::release() { panels_.drop(); }

bool Parameter::is_gathered() const { return part_.unit->gathered(); }

void Parameter::fail_released() {
  throw RunError("a weight that ranks share out is used where it is not gathered");
}

at::Tensor Parameter::whole_value() const {
  if (!part_.placement) return float_value();
  return part_.placement->whole(trained().detach()).to(at::kFloat);
}

void Parameter::set_whole_value(const at::Tensor& whole) {
  if (!part_.placement) return set_value(whole.clone());
  const at::Tensor part = part_.placement->part(whole);
  if (!part_.kept.defined()) return set_value(part);
  part_.kept.detach().copy_(part);
  mark_updated();
}

void Parameter::set_value(at::Tensor value) {
  check(!part_.unit, "a parameter that ranks share out is set by its parts");
  check(value.sizes().vec() == shape_ && value.is_contiguous(), "parameter: shape ", value.sizes(),
        " where ", at::IntArrayRef(shape_), " belongs");
  check(!ops::is_quantized(format()) || !trainable_, "a quantized parameter does not train");
  stored_.set(value);
  set_trainable(trainable_);
  mark_updated();
}

void Parameter::set_codes(std::shared_ptr<const ops::QuantizedWeight> codes) {
  check(codes->rows == shape_[0] && codes->width == shape_[1], "parameter: codes of ", codes->rows,
        " by ", codes->width, " where ", at::IntArrayRef(shape_), " belongs");
  check(!trainable_, "a quantized parameter does not train");
  stored_.set_codes(std::move(codes));
  mark_updated();
}

at::Tensor Parameter::float_value() const {
  if (format() != ops::WeightFormat::kRoundedBFloat16) check_gathered();
  return stored_.float_value();
}

void Parameter::own() { set_value(stored_.tensor().detach().clone()); }

void Parameter::set_trainable(bool trainable) {
  if (constant_) return;
  check(!trainable || ops::row_of(format()).trains, "a parameter that is kept in ",
        ops::row_of(format()).name, " does not train");
  trainable_ = trainable;
  for (const at::Tensor& leaf : {stored_.tensor(), part_.kept})
    if (leaf.defined()) leaf.requires_grad_(trainable);
}

ops::Weight Parameter::stored() const {
  check_gathered();
  ops::Weight weight = stored_.weight();
  if (rows_)
    weight.trained =
        std::make_shared<const ops::TrainedRows>(ops::TrainedRows{row_ids_, rows_->value()});
  return weight;
}

ops::Weight Parameter::weight() const {
  ops::Weight weight = stored();
  if (!weight.quantized) weight.panels = panels_.of(weight, updates());
  return weight;
}

void Parameter::mark_updated() {
  ++updates_;
  owner_.count_change();
  panels_.drop();
  if (on_update_) on_update_();
}

void Parameter::set_trained_rows(const Parameter* rows, std::vector<int64_t> ids) {
  rows_ = rows;
  row_ids_ = std::move(ids);
}

}  // namespace temper::nn
