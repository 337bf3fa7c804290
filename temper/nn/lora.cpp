#include "temper/nn/lora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "temper/ops/layers/dora.h"
#include "temper/ops/layers/dropout.h"
#include "temper/ops/layers/linear.h"
#include "temper/ops/product.h"
#include "temper/ops/rounding.h"

namespace temper::nn {
namespace {

ops::LinearOperand without_bias(const Parameter& weight) { return {weight.weight(), {}}; }

// Rows of a frozen weight as products see them.
ops::RowsOf rows_of(const Parameter& base) {
  const ops::Weight weight = base.stored();
  at::Tensor read = ops::read(weight).detach();
  if (weight.quantized && weight.arithmetic == ops::Arithmetic::kAmx)
    read = read.to(at::kBFloat16).to(at::kFloat);
  return [values = std::move(read)](int64_t first, int64_t count) {
    return values.narrow(0, first, count);
  };
}

}  // namespace

// PEFT draws A as kaiming_uniform(a = sqrt 5): uniform of init_std 1 / sqrt(3 in). B begins at 0,
// the magnitude at the norm of W.
Lora::Lora(Module& owner, int64_t in, int64_t out, int64_t rank, double scale, double dropout,
           uint64_t key, bool dora)
    : scale(scale),
      dropout(dropout),
      key(key),
      lora_A(owner, "lora_A", {rank, in},
             {Init::Kind::kNormal, 1.0 / std::sqrt(3.0 * static_cast<double>(in))}),
      lora_B(owner, "lora_B", {out, rank}, {Init::Kind::kZeros, 0}) {
  if (dora)
    lora_magnitude_vector.emplace(owner, "lora_magnitude_vector", std::vector<int64_t>{out},
                                  Init{Init::Kind::kOnes, 0});
}

void Lora::set_arithmetic(ops::WeightFormat beside, ops::Arithmetic arithmetic) {
  if (!ops::rounds_factors(beside, arithmetic)) return;
  for (Part* part : {&lora_A, &lora_B}) {
    part->weight.set_format(ops::WeightFormat::kRoundedBFloat16);
    part->weight.set_arithmetic(arithmetic);
  }
}

void Lora::each_parameter(const std::function<void(const char* name, Parameter&)>& visit) {
  visit("lora_A", lora_A.weight);
  visit("lora_B", lora_B.weight);
  if (lora_magnitude_vector) visit("lora_magnitude_vector", lora_magnitude_vector->weight);
}

at::Tensor Lora::row_norms(const Parameter& base) const {
  const std::lock_guard lock(norms_mutex_);
  const uint64_t now[3] = {base.updates(), lora_A.weight.updates(), lora_B.weight.updates()};
  if (norms_.defined() && std::equal(now, now + 3, norms_of_)) return norms_;
  const at::NoGradGuard no_grad;
  norms_ = ops::adapted_row_norms(rows_of(base), ops::read(lora_A.weight.stored()).detach(),
                                  ops::read(lora_B.weight.stored()).detach(), scale);
  if (inputs_divided_by) {
    norms_ = norms_.square();
    inputs_divided_by->all_reduce_sum(norms_);
    norms_ = norms_.sqrt();
  }
  std::copy(now, now + 3, norms_of_);
  return norms_;
}

at::Tensor Lora::adapt(const at::Tensor& product, const at::Tensor& low, const Parameter& base,
                       const at::Tensor& bias) {
  const at::Tensor up = ops::linear(ops::LinearInput::plain(low), {without_bias(lora_B.weight)})[0];
  const at::Tensor sum = ops::add_scaled(product, up, scale);
  if (!lora_magnitude_vector) return sum;
  return ops::scale_features(sum, lora_magnitude_vector->weight.value(), row_norms(base), bias);
}

namespace {

// Dropout whose random numbers are those of the whole input, of which `x` has the columns of this
// rank.
at::Tensor drop_columns(const at::Tensor& x, const dist::Group& ranks,
                        const std::function<at::Tensor(const at::Tensor&)>& drop) {
  const int64_t width = x.size(1), before = ranks.rank() * width,
                after = (ranks.size() - 1 - ranks.rank()) * width;
  return drop(at::constant_pad_nd(x, {before, after})).narrow(1, before, width).contiguous();
}

}  // namespace

// PEFT's DoRA drops the input of its own correction, W included, and not that of the base layer:
// y = W x + bias - W d + m / ||..|| (W d + scale B A d), with d = dropout(x).
at::Tensor Lora::adapt_dropped(const at::Tensor& product, const at::Tensor& x,
                               const Parameter& base, const DropoutKeys& keys) {
  const auto drop = [&](const at::Tensor& whole) {
    return ops::dropout(whole, dropout, keys.seed, keys.step, key, keys.token);
  };
  const ops::LinearInput dropped = ops::LinearInput::plain(
      inputs_divided_by ? drop_columns(x, *inputs_divided_by, drop) : drop(x));
  if (!lora_magnitude_vector)
    return adapt(product, ops::linear(dropped, {without_bias(lora_A.weight)})[0], base, {});
  const std::vector<at::Tensor> both =
      ops::linear(dropped, {without_bias(lora_A.weight), without_bias(base)});
  return ops::add_scaled(ops::add_scaled(product, both[1], -1), adapt(both[1], both[0], base, {}));
}

at::Tensor Lora::merged(const Parameter& base) const {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = base.float_value();
  at::Tensor delta = at::empty_like(weight);
  ops::product({lora_B.weight.value()}, {lora_A.weight.value()}, delta);
  const at::Tensor sum = ops::add_scaled(weight, delta, scale).detach();
  if (!lora_magnitude_vector) return sum;
  return sum * ops::feature_scale(lora_magnitude_vector->weight.value(), row_norms(base))
                   .detach()
                   .unsqueeze(1);
}

void Lora::copy_values(const Lora& from) {
  const auto copy = [](Parameter& to, const Parameter& value) {
    to.set_value(value.value().detach().clone());
  };
  copy(lora_A.weight, from.lora_A.weight);
  copy(lora_B.weight, from.lora_B.weight);
  if (lora_magnitude_vector)
    copy(lora_magnitude_vector->weight, from.lora_magnitude_vector->weight);
}

}  // namespace temper::nn
