#include "temper/models/model.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/models/vision/encoder.h"
#include "temper/nn/blocks.h"
#include "temper/ops/layers/embedding.h"
#include "temper/ops/rounding.h"

namespace temper::models {

Model::Model(std::unique_ptr<Backbone> body) : body_((adopt("model", *body), std::move(body))) {}

at::Tensor Model::forward(const nn::Context& context) {
  if (!vision || context.forest->rows.empty()) return body_->forward(context);
  nn::Context with_features = context;
  with_features.forest = vision->with_features(context);
  return body_->forward(with_features);
}

Tower& Model::take_tower() {
  check(vision != nullptr, "a model without a vision tower");
  Tower& tower = vision->tower();
  if (vision->is_taken()) return tower;
  const nn::Linear* first = nullptr;  // adapters that were added before
  body_->visit({.linear = [&](const std::string&, nn::Linear& layer) {
    if (!first) first = &layer;
  }});
  if (first)
    tower.visit(
        {.linear = [&](const std::string&, nn::Linear& layer) { layer.count_copies_as(*first); }});
  adopt(kTowerParent, tower);
  vision->set_taken();
  return tower;
}

Tower* Model::tower() const { return vision && vision->is_taken() ? &vision->tower() : nullptr; }

CausalLM::CausalLM(std::unique_ptr<Backbone> body)
    : Model(std::move(body)),
      head_(*this, *body_),
      num_layers(body_->config().num_hidden_layers),
      vocab_size(body_->config().vocab_size),
      hidden_size(body_->config().hidden_size) {}

ops::Logits CausalLM::logits(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                             double temperature, int adapter) const {
  return head_.logits(ops::select_rows(hidden, rows), temperature, adapter);
}

ScalarModel::ScalarModel(std::unique_ptr<Backbone> body)
    : Model(std::move(body)), head_(*this, body_->config()) {}

Storage frozen_storage(bool bfloat16, std::optional<StorageName> name) {
  using Format = ops::WeightFormat;
  const std::optional<Format> asked = format_of(name.value_or(StorageName::kFile));
  if (asked == Format::kFloat32) return {bfloat16 ? Format::kRoundedBFloat16 : Format::kFloat32};
  const bool of_blocks = asked && ops::is_quantized(*asked);
  return {.weights = bfloat16 || asked == Format::kBFloat16 ? Format::kBFloat16 : Format::kFloat32,
          .blocks = of_blocks ? asked : std::nullopt,
          .file = !asked};
}

bool uses_arithmetic(const Storage& storage, const std::set<ops::WeightFormat>& held) {
  using Format = ops::WeightFormat;
  if (storage.arithmetic == ops::Arithmetic::kExact) return true;
  const auto takes = [&](Format f) {
    if (storage.arithmetic == ops::Arithmetic::kInteger) return ops::has_integers(f);
    return ops::rounds_factors(f, storage.arithmetic);
  };
  if (takes(storage.weights) || (storage.blocks && takes(*storage.blocks))) return true;
  return storage.file && std::ranges::any_of(held, takes);
}

void set_storage(nn::Module& model, const Storage& storage) {
  model.each_parameter([&](const std::string&, nn::Parameter& p) { p.set_device(storage.device); });
  const auto keep = [&](nn::Parameter& weight, ops::WeightFormat format) {
    weight.set_format(format);
    weight.set_arithmetic(storage.arithmetic);
    weight.set_takes_codes(true);
  };
  // What files hold is known when they are read.
  const bool converted = storage.blocks && !ops::row_of(*storage.blocks).of_files;
  const ops::WeightFormat blocks = converted ? *storage.blocks : storage.weights;
  model.visit(
      {.linear =
           [&](const std::string&, nn::Linear& layer) {
             keep(layer.weight, layer.role() == nn::Role::kHead ? storage.weights : blocks);
           },
       .lm_head = [&](const std::string&, nn::LmHead& head) { keep(head.weight, storage.weights); },
       .embedding = [&](const std::string&,
                        nn::Embedding& embedding) { keep(embedding.weight, storage.weights); }});
  set_cache_dtype(model, storage.cache_dtype);
}

void set_cache_dtype(nn::Module& model, ops::CacheDtype dtype) {
  model.visit({.attention = [&](const std::string&, nn::Attention& attention) {
    attention.set_cache_dtype(dtype);
  }});
}

std::unique_ptr<CausalLM> make_model(const HfConfig& config) {
  return std::make_unique<CausalLM>(make_body(config));
}

}  // namespace temper::models
