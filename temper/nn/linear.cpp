#include "temper/nn/linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/nn/mixed_adapters.h"
#include "temper/nn/unit.h"
#include "temper/ops/layers/embedding.h"

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
  return noise.to(x.options());
}

// x with external rows in place of its own.
at::Tensor with_rows(const at::Tensor& x, const std::vector<ExternalRows>& rows) {
  std::vector<at::Tensor> parts;
  int64_t end = 0;
  const auto keep_until = [&](int64_t begin) {
    if (begin > end) parts.push_back(x.narrow(0, end, begin - end));
  };
  for (const ExternalRows& r : rows) {
    check(r.features.defined(), "external rows without features: the model has no part for images");
    check(r.features.size(1) == x.size(1), "external rows of ", r.features.size(1),
          " numbers, and the model's have ", x.size(1));
    keep_until(r.begin);
    parts.push_back(r.features.narrow(0, r.first, r.count).to(x.device()));
    end = r.begin + r.count;
  }
  keep_until(x.size(0));
  return at::cat(parts);
}

}  // namespace

Linear::Linear(Module& parent, std::string name, int64_t in, int64_t out, bool has_bias,
               double init_std, LinearSplit may_split)
    : Module(parent, std::move(name)),
      own_weight_(std::in_place, *this, "weight", std::vector<int64_t>{out, in},
                  Init{Init::Kind::kNormal, init_std}),
      weight(*own_weight_),
      may_split_(may_split) {
  if (has_bias) bias.emplace(*this, "bias", std::vector<int64_t>{out}, Init{Init::Kind::kZeros, 0});
  if (may_split == LinearSplit::kNone) return;
  weight.set_divides(may_split == LinearSplit::kColumns ? 0 : 1);
  if (bias && may_split == LinearSplit::kColumns) bias->set_divides(0);
}

Linear::Linear(Module& parent, std::string name, Parameter& shared_weight)
    : Module(parent, std::move(name)), weight(shared_weight) {}

at::Tensor Linear::forward(const ops::LinearInput& x, const Context& context) {
  return project(x, {this}, context)[0];
}

void Linear::split(std::shared_ptr<dist::Group> group) {
  split_ = may_split_;
  group_ = group;
  weight.split(group, joined_);
  if (!bias) return;
  if (bias->divides())
    bias->split(group, joined_);
  else
    bias->set_gradient_is_partial();  // the first rank alone adds it
}

void Linear::give_to(int owner, std::shared_ptr<dist::Group> group) {
  owner_ = owner;
  group_ = group;
  weight.give_to(owner, group);
  if (bias) bias->give_to(owner, std::move(group));
}

at::Tensor Linear::added_bias() const {
  return bias && (split_ != LinearSplit::kRows || group_->rank() == 0) ? bias->value()
                                                                       : at::Tensor();
}

std::vector<at::Tensor> project(const ops::LinearInput& whole_x, const std::vector<Linear*>& layers,
                                const Context& context) {
  if (!context.adapter_rows.empty()) return project_mixed(whole_x, layers, context);
  ops::LinearInput x = whole_x;
  if (layers[0]->split_ == LinearSplit::kColumns) x.ranks = layers[0]->group_;
  std::vector<ops::LinearOperand> operands;
  for (Linear* layer : layers) {
    const Lora* lora = layer->adapter(context.adapter);
    const bool separate = lora && lora->separate_bias(context);
    operands.push_back(operand(layer->weight, separate ? at::Tensor() : layer->added_bias()));
  }
  // Adapters without dropout read the same input, so they are further layers of the same call.
  std::vector<size_t> low(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    Lora* lora = layers[i]->adapter(context.adapter);
    if (!lora || lora->drops(context)) continue;
    low[i] = operands.size();
    operands.push_back(operand(lora->lora_A.weight));
  }
  std::vector<at::Tensor> outputs = ops::linear(x, operands);
  at::Tensor values;
  for (size_t i = 0; i < layers.size(); ++i) {
    Linear& layer = *layers[i];
    Lora* lora = layer.adapter(context.adapter);
    if (!lora) continue;
    if (low[i] > 0) {
      outputs[i] = lora->adapt(outputs[i], outputs[low[i]], layer.weight, layer.added_bias());
      continue;
    }
    if (!values.defined()) values = ops::materialize(x);
    outputs[i] = lora->adapt_dropped(outputs[i], values, layer.weight, *context.dropout);
  }
  outputs.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i]->split_ == LinearSplit::kRows)
      outputs[i] = ops::sum_over(layers[i]->group_, outputs[i]);
  return outputs;
}

void Linear::add_lora(int64_t rank, double scale, double dropout, uint64_t key, bool dora) {
  check(!lora_, "a linear layer has one adapter");
  weight.set_trainable(false);
  if (bias) bias->set_trainable(false);
  lora_ = make_lora(*this, rank, scale, dropout, key, dora);
}

// The matrix beside the layer's part is divided as it is; the other one is whole, and used by each
// rank for its part.
std::unique_ptr<Lora> Linear::make_lora(Module& owner, int64_t rank, double scale, double dropout,
                                        uint64_t key, bool dora) const {
  auto lora = std::make_unique<Lora>(owner, in(), out(), rank, scale, dropout, key, dora);
  lora->each_parameter([&](const char*, Parameter& p) { p.set_device(weight.device()); });
  lora->set_arithmetic(weight.format(), weight.arithmetic());
  if (owner_ >= 0)
    lora->each_parameter([&](const char*, Parameter& p) { p.give_to(owner_, group_); });
  if (split_ == LinearSplit::kNone) return lora;
  const bool columns = split_ == LinearSplit::kColumns;
  Parameter& divided = (columns ? lora->lora_B : lora->lora_A).weight;
  divided.set_divides(columns ? 0 : 1);
  divided.split(group_, joined_);
  (columns ? lora->lora_A : lora->lora_B).weight.set_gradient_is_partial();
  if (!columns) lora->inputs_divided_by = group_;
  if (!lora->lora_magnitude_vector) return lora;
  Parameter& magnitude = lora->lora_magnitude_vector->weight;
  if (!columns) {
    magnitude.set_gradient_is_partial();
    return lora;
  }
  magnitude.set_divides(0);
  magnitude.split(group_, joined_);
  return lora;
}

int Linear::add_frozen_copy(int from) {
  const Lora* const original = adapter(from);
  FrozenCopy copy;
  if (original) {
    const int64_t rank = original->lora_A.weight.whole_shape()[0];
    copy.owner = std::make_unique<Module>(*this, Module::Unlisted());
    copy.lora = make_lora(*copy.owner, rank, original->scale, 0, original->key,
                          original->lora_magnitude_vector.has_value());
    copy.lora->copy_values(*original);
  }
  auto place =
      std::find_if(copies_.begin(), copies_.end(), [](const FrozenCopy& c) { return c.removed; });
  if (place == copies_.end()) place = copies_.emplace(copies_.end());
  *place = std::move(copy);
  return static_cast<int>(place - copies_.begin()) + 1;
}

void Linear::remove_frozen_copy(int index) {
  check(index >= 1 && static_cast<size_t>(index) <= copies_.size(), "adapter ", index,
        " is no frozen copy");
  FrozenCopy& copy = copies_[static_cast<size_t>(index) - 1];
  copy.lora.reset();  // before its owner
  copy.owner.reset();
  copy.removed = true;
}

void Linear::count_copies_as(const Linear& other) {
  check(copies_.empty(), "a layer that has copies of adapters");
  for (const FrozenCopy& copy : other.copies_) copies_.emplace_back().removed = copy.removed;
}

bool Linear::is_adapted() const {
  return lora_ || std::any_of(copies_.begin(), copies_.end(),
                              [](const FrozenCopy& copy) { return copy.lora != nullptr; });
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
  check(own_weight_.has_value(),
        "an adapter of a head whose weight is the embedding's is not merged into it");
  if (weight.is_elsewhere()) return remove_lora();
  using ops::WeightFormat;
  const at::Tensor merged = lora_->merged(weight);
  if (ops::is_quantized(weight.format())) weight.set_format(WeightFormat::kFloat32);
  if (weight.format() == WeightFormat::kBFloat16) weight.set_format(WeightFormat::kRoundedBFloat16);
  weight.set_value(merged);
  remove_lora();
}

void Linear::remove_lora() {
  if (!lora_) return;
  forget(lora_->lora_A);
  forget(lora_->lora_B);
  if (lora_->lora_magnitude_vector) forget(*lora_->lora_magnitude_vector);
  lora_.reset();
}

RmsNorm::RmsNorm(Module& parent, std::string name, int64_t width, double eps, bool add_unit_offset,
                 bool centered)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {width},
             {add_unit_offset ? Init::Kind::kZeros : Init::Kind::kOnes, 0}),
      eps(eps),
      add_unit_offset(add_unit_offset),
      centered(centered) {
  set_role(Role::kNorm);
}

ops::LinearInput RmsNorm::input(const at::Tensor& x) const {
  if (centered) return ops::LinearInput::layer_norm(x, weight.value(), eps);
  return ops::LinearInput::rms_norm(x, weight.value(), eps, add_unit_offset);
}

Embedding::Embedding(Module& parent, std::string name, int64_t vocabulary, int64_t width,
                     double init_std, double scale)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {vocabulary, width}, {Init::Kind::kNormal, init_std}),
      scale(scale) {
  weight.set_divides(0);
  set_role(Role::kEmbedding);
  set_runs_as_unit();
}

void Embedding::split(std::shared_ptr<dist::Group> group) {
  weight.split(group);
  group_ = std::move(group);
}

// An adapter may have weights of its own.
at::Tensor Embedding::of_ids(const std::vector<int64_t>& ids, const Context& context) {
  const auto under = [&](int adapter, const std::vector<int64_t>& some) {
    return ops::embedding(versions.at(weight, adapter).stored(), some, scale);
  };
  if (context.adapter_rows.empty()) return under(context.adapter, ids);
  std::vector<at::Tensor> parts;
  for (const AdapterRows& rows : context.adapter_rows)
    parts.push_back(under(rows.adapter, {ids.begin() + rows.begin, ids.begin() + rows.end}));
  return at::cat(parts);
}

at::Tensor Embedding::of_tokens(const Context& context) {
  std::vector<int64_t> ids(context.forest->tokens.begin(), context.forest->tokens.end());
  if (group_)
    for (int64_t& id : ids) {
      check<DataError>(id >= 0 && id < weight.whole_shape()[0], "token id ", id,
                       " is outside the model's vocabulary of ", weight.whole_shape()[0]);
      id -= group_->rank() * weight.shape()[0];
      if (id < 0 || id >= weight.shape()[0]) id = ops::kNoRow;
    }
  const at::Tensor x = run_unit(*this, {}, context.adapters(), false,
                                [&](const Tensors&) { return Tensors{of_ids(ids, context)}; })[0];
  return group_ ? ops::sum_over(group_, x) : x;
}

at::Tensor Embedding::forward(const Context& context) {
  at::Tensor x = of_tokens(context);
  if (context.dropout && context.dropout->noise_alpha != 0)
    x = ops::add_scaled(x, embedding_noise(*context.dropout, x));
  const std::vector<ExternalRows>& rows = context.forest->rows;
  return rows.empty() ? x : with_rows(x, rows);
}

LmHead::LmHead(Module& parent, std::string name, int64_t width, int64_t vocabulary, double init_std)
    : Linear(parent, std::move(name), width, vocabulary, false, init_std) {
  weight.set_divides(0);
  set_role(Role::kHead);
  set_runs_as_unit();
}

void Linear::accept(const std::string& path, const LayerVisitor& visitor) {
  if (visitor.linear) visitor.linear(path, *this);
}

void LmHead::accept(const std::string& path, const LayerVisitor& visitor) {
  if (visitor.lm_head) return visitor.lm_head(path, *this);
  Linear::accept(path, visitor);
}

void TiedHead::accept(const std::string& path, const LayerVisitor& visitor) {
  if (visitor.tied_head) visitor.tied_head(path, *this);
}

void Embedding::accept(const std::string& path, const LayerVisitor& visitor) {
  if (visitor.embedding) visitor.embedding(path, *this);
}

}  // namespace temper::nn
