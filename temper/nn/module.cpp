#include "temper/nn/module.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <atomic>

#include "temper/base/error.h"
#include "temper/nn/unit.h"

namespace temper::nn {
namespace {
std::atomic<uint64_t> changes{0};
}
uint64_t parameter_changes() { return changes.load(std::memory_order_relaxed); }

Parameter::Parameter(Module& owner, std::string name, std::vector<int64_t> shape, Init init)
    : shape_(std::move(shape)), init_(init) {
  owner.children_.push_back({std::move(name), nullptr, this});
}

void Parameter::set_format(ops::WeightFormat format) {
  if (format == format_) return;
  check(!ops::is_quantized(format) || shape_.size() == 2, "only matrices are quantized");
  const bool had = has_value();
  const at::Tensor value = had ? float_value() : at::Tensor();
  format_ = format;
  if (had) set_value(value);
}

void Parameter::split(int64_t dim, std::shared_ptr<dist::Group> tensor) {
  check(!has_value() && !placement_, "a parameter is split before it has a value");
  auto placement = std::make_shared<Placement>();
  placement->whole_shape = shape_;
  placement->dim = dim;
  const int64_t extent = shape_[static_cast<size_t>(dim)], ranks = tensor->size();
  check<ConfigError>(extent % ranks == 0, extent, " is not divisible by ", ranks);
  shape_[static_cast<size_t>(dim)] = extent / ranks;
  placement->tensor = std::move(tensor);
  placement_ = std::move(placement);
}

void Parameter::shard(const Unit& unit, Placement placement, at::Tensor kept, at::Tensor value) {
  placement.whole_shape = whole_shape();
  if (placement_) {
    placement.tensor = placement_->tensor;
    placement.dim = placement_->dim;
  }
  placement_ = std::make_shared<Placement>(std::move(placement));
  unit_ = &unit;
  kept_ = std::move(kept);
  value_ = std::move(value);
  set_trainable(trainable_);
  release();
}

void Parameter::shard(const Unit& unit, std::shared_ptr<const ops::QuantizedWeight> codes) {
  codes_ = std::move(codes);
  unit_ = &unit;
}

void Parameter::release() {
  const std::lock_guard lock(panels_mutex_);
  panels_.reset();
}

bool Parameter::value_is_here() const { return unit_->gathered(); }

void Parameter::fail_released() {
  throw RunError("a weight that ranks share out is used where it is not gathered");
}

at::Tensor Parameter::whole_value() const {
  if (!placement_) return float_value();
  return placement_->whole(trained().detach()).to(at::kFloat);
}

void Parameter::set_whole_value(const at::Tensor& whole) {
  if (!placement_) return set_value(whole.clone());
  const at::Tensor part = placement_->part(whole);
  if (!kept_.defined()) return set_value(part);
  kept_.detach().copy_(part);
  mark_updated();
}

void Parameter::set_value(at::Tensor value) {
  check(!unit_, "a parameter that ranks share out is set by its parts");
  check(value.sizes().vec() == shape_ && value.is_contiguous(), "parameter: shape ", value.sizes(),
        " where ", at::IntArrayRef(shape_), " belongs");
  if (ops::is_quantized(format_)) {
    const bool nf4 = format_ == ops::WeightFormat::kNf4;
    return set_codes(ops::quantize(value, nf4 ? kernels::Code::kNf4 : kernels::Code::kInt8));
  }
  codes_.reset();
  if (format_ == ops::WeightFormat::kBFloat16)
    value_ = value.to(at::kBFloat16);
  else
    value_ = value.scalar_type() == at::kDouble ? value : value.to(at::kFloat);
  set_trainable(trainable_);
  mark_updated();
}

void Parameter::set_codes(std::shared_ptr<const ops::QuantizedWeight> codes) {
  check(codes->rows == shape_[0] && codes->width == shape_[1], "parameter: codes of ", codes->rows,
        " by ", codes->width, " where ", at::IntArrayRef(shape_), " belongs");
  check(!trainable_, "a quantized parameter does not train");
  format_ = codes->format();
  codes_ = std::move(codes);
  value_.reset();
  mark_updated();
}

at::Tensor Parameter::float_value() const {
  return format_ == ops::WeightFormat::kRoundedBFloat16 ? value_ : ops::read(stored());
}

void Parameter::own() { set_value(value_.detach().clone()); }

void Parameter::set_trainable(bool trainable) {
  check(!trainable || (format_ != ops::WeightFormat::kBFloat16 && !ops::is_quantized(format_)),
        "a parameter that is kept in ", ops::name_of(format_), " does not train");
  trainable_ = trainable;
  if (value_.defined()) value_.requires_grad_(trainable);
  if (kept_.defined()) kept_.requires_grad_(trainable);
}

ops::Weight Parameter::stored() const {
  if (unit_ && !value_is_here()) fail_released();
  if (codes_) return ops::Weight(codes_);
  ops::Weight weight(value_);
  if (format_ == ops::WeightFormat::kRoundedBFloat16 && value_.scalar_type() == at::kFloat)
    weight.format = format_;
  weight.arithmetic = arithmetic_;
  return weight;
}

ops::Weight Parameter::weight() const {
  ops::Weight weight = stored();
  if (!codes_) weight.panels = panels();
  return weight;
}

void Parameter::mark_updated() {
  ++updates_;
  changes.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(panels_mutex_);
  panels_.reset();
}

namespace {
thread_local int transient_panels = 0;
}
TransientPanels::TransientPanels() { ++transient_panels; }
TransientPanels::~TransientPanels() { --transient_panels; }

at::Tensor Parameter::panels() const {
  const std::lock_guard lock(panels_mutex_);  // two threads that come first pack once
  if (at::GradMode::is_enabled() || transient_panels > 0 || value_.scalar_type() == at::kDouble) {
    panels_.reset();
    return {};
  }
  const uint64_t updates = updates_.load();
  if (!panels_.defined() || panels_of_ != updates) {
    panels_ = ops::pack(stored());
    panels_of_ = updates;
  }
  return panels_;
}

Module::Module(Module& parent, std::string name) {
  parent.children_.push_back({std::move(name), this, nullptr});
}

void Module::adopt(std::string name, Module& child) {
  children_.push_back({std::move(name), &child, nullptr});
}

void Module::forget(const Module& child) {
  std::erase_if(children_, [&](const Child& c) { return c.module == &child; });
}

void Module::each_parameter(const std::function<void(const std::string&, Parameter&)>& visit) {
  visit_parameters("", visit);
}

void Module::visit_parameters(const std::string& prefix,
                              const std::function<void(const std::string&, Parameter&)>& visit) {
  for (const Child& child : children_) {
    if (child.parameter)
      visit(prefix + child.name, *child.parameter);
    else
      child.module->visit_parameters(prefix + child.name + ".", visit);
  }
}

void Module::each_module(const std::function<void(const std::string&, Module&)>& visit) {
  visit_modules("", visit);
}

void Module::visit_modules(const std::string& path,
                           const std::function<void(const std::string&, Module&)>& visit) {
  visit(path, *this);
  for (const Child& child : children_)
    if (child.module)
      child.module->visit_modules(path.empty() ? child.name : path + "." + child.name, visit);
}

}  // namespace temper::nn
