#include "temper/nn/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/ops/dropout.h"
#include "temper/ops/embedding.h"
#include "temper/ops/product.h"

namespace temper::nn {
namespace {
ops::LinearOperand operand(Parameter& weight, const at::Tensor& bias = {}) {
  return {weight.weight(), bias};
}

// NEFTune's noise, of x's shape. A row's magnitude is rounded once, from double.
at::Tensor embedding_noise(const DropoutKeys& keys, const at::Tensor& x) {
  const int64_t n = x.size(0), width = x.size(1);
  check(keys.token.size() == static_cast<size_t>(n) && keys.row_tokens.size() == keys.token.size(),
        "embedding noise: ", keys.token.size(), " keys for ", n, " tokens");
  at::Tensor noise = at::empty({n, width}, at::kFloat);
  float* out = noise.mutable_data_ptr<float>();
#pragma omp parallel for schedule(static) if (n * width > 32768)
  for (int64_t r = 0; r < n; ++r) {
    const size_t token = static_cast<size_t>(r);
    const RandomStream stream(keys.seed, RandomPurpose::kEmbeddingNoise, keys.step,
                              keys.token[token]);
    const float magnitude = static_cast<float>(
        keys.noise_alpha / std::sqrt(static_cast<double>(keys.row_tokens[token] * width)));
    for (int64_t i = 0; i < width; ++i)
      out[r * width + i] = magnitude * (2 * stream.uniform(static_cast<uint64_t>(i)) - 1);
  }
  return noise.to(x.scalar_type());
}

// B (A x) with A x given.
at::Tensor adapted(const at::Tensor& y, Lora& lora, const at::Tensor& low) {
  const at::Tensor up = ops::linear(ops::LinearInput::plain(low), {operand(lora.lora_B.weight)})[0];
  return ops::add_scaled(y, up, lora.scale);
}
}  // namespace

// PEFT draws A as kaiming_uniform(a = sqrt 5): uniform of init_std 1 / sqrt(3 in). B begins at 0.
Lora::Lora(Module& owner, int64_t in, int64_t out, int64_t rank, double scale, double dropout,
           uint64_t key)
    : scale(scale),
      dropout(dropout),
      key(key),
      lora_A(owner, "lora_A", rank, in,
             {Init::Kind::kNormal, 1.0 / std::sqrt(3.0 * static_cast<double>(in))}),
      lora_B(owner, "lora_B", out, rank, {Init::Kind::kZeros, 0}) {}

Linear::Linear(Module& parent, std::string name, int64_t in, int64_t out, bool has_bias,
               double init_std)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {out, in}, {Init::Kind::kNormal, init_std}) {
  if (has_bias) bias.emplace(*this, "bias", std::vector<int64_t>{out}, Init{Init::Kind::kZeros, 0});
}

at::Tensor Linear::forward(const ops::LinearInput& x, const Context& context) {
  return project(x, {this}, context)[0];
}

std::vector<at::Tensor> project(const ops::LinearInput& x, const std::vector<Linear*>& layers,
                                const Context& context) {
  std::vector<ops::LinearOperand> operands;
  for (Linear* layer : layers)
    operands.push_back(operand(layer->weight, layer->bias ? layer->bias->value() : at::Tensor()));
  // Adapters without dropout read the same input, so they are further layers of the same call.
  std::vector<size_t> low(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    Lora* lora = layers[i]->adapter(context.adapter);
    if (!lora || (context.dropout && lora->dropout > 0)) continue;
    low[i] = operands.size();
    operands.push_back(operand(lora->lora_A.weight));
  }
  std::vector<at::Tensor> outputs = ops::linear(x, operands);
  at::Tensor values;
  for (size_t i = 0; i < layers.size(); ++i) {
    Lora* lora = layers[i]->adapter(context.adapter);
    if (!lora) continue;
    if (low[i] > 0) {
      outputs[i] = adapted(outputs[i], *lora, outputs[low[i]]);
      continue;
    }
    if (!values.defined()) values = ops::materialize(x);
    const DropoutKeys& keys = *context.dropout;
    const at::Tensor dropped =
        ops::dropout(values, lora->dropout, keys.seed, keys.step, lora->key, keys.token);
    outputs[i] =
        adapted(outputs[i], *lora,
                ops::linear(ops::LinearInput::plain(dropped), {operand(lora->lora_A.weight)})[0]);
  }
  outputs.resize(layers.size());
  return outputs;
}

void Linear::add_lora(int64_t rank, double scale, double dropout, uint64_t key) {
  check(!lora_, "a linear layer has one adapter");
  weight.set_trainable(false);
  if (bias) bias->set_trainable(false);
  lora_ = std::make_unique<Lora>(*this, in(), out(), rank, scale, dropout, key);
}

int Linear::add_frozen_copy() {
  FrozenCopy& copy = copies_.emplace_back();
  if (lora_) {
    const int64_t rank = lora_->lora_A.weight.shape()[0];
    copy.owner = std::make_unique<Module>();
    copy.lora = std::make_unique<Lora>(*copy.owner, in(), out(), rank, lora_->scale, 0, lora_->key);
    copy.lora->lora_A.weight.set_value(lora_->lora_A.weight.value().detach().clone());
    copy.lora->lora_B.weight.set_value(lora_->lora_B.weight.value().detach().clone());
  }
  return static_cast<int>(copies_.size());
}

Lora* Linear::adapter(int index) {
  if (index == 0) return lora_.get();
  if (index < 0) return nullptr;
  check(static_cast<size_t>(index) <= copies_.size(), "adapter ", index, " of a model with ",
        copies_.size(), " frozen copies of its adapter");
  return copies_[static_cast<size_t>(index) - 1].lora.get();
}

void Linear::merge_lora() {
  if (!lora_) return;
  check(copies_.empty(), "an adapter that has frozen copies is not merged");
  const at::NoGradGuard no_grad;
  const at::Tensor base = ops::read(weight.stored());
  at::Tensor merged = at::empty_like(base);
  ops::product({lora_->lora_B.weight.value()}, {lora_->lora_A.weight.value()}, merged);
  weight.set_format(ops::WeightFormat::kFloat32);
  weight.set_value(ops::add_scaled(base, merged, lora_->scale).detach());
  forget(lora_->lora_A);
  forget(lora_->lora_B);
  lora_.reset();
}

RmsNorm::RmsNorm(Module& parent, std::string name, int64_t width, double eps, bool add_unit_offset)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {width},
             {add_unit_offset ? Init::Kind::kZeros : Init::Kind::kOnes, 0}),
      eps(eps),
      add_unit_offset(add_unit_offset) {}

ops::LinearInput RmsNorm::input(const at::Tensor& x) const {
  return ops::LinearInput::rms_norm(x, weight.value(), eps, add_unit_offset);
}

Embedding::Embedding(Module& parent, std::string name, int64_t vocabulary, int64_t width,
                     double init_std, double scale)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {vocabulary, width}, {Init::Kind::kNormal, init_std}),
      scale(scale) {}

at::Tensor Embedding::forward(const Context& context) const {
  const std::vector<int32_t>& tokens = context.forest->tokens;
  const at::Tensor x = ops::embedding(weight.weight(), {tokens.begin(), tokens.end()}, scale);
  if (!context.dropout || context.dropout->noise_alpha == 0) return x;
  return ops::add_scaled(x, embedding_noise(*context.dropout, x));
}

}  // namespace temper::nn
