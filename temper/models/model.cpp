#include "temper/models/model.h"

#include <ATen/ATen.h>

#include "temper/nn/blocks.h"
#include "temper/ops/embedding.h"

namespace temper::models {

CausalLM::CausalLM(std::unique_ptr<Backbone> body)
    : body_((adopt("model", *body), std::move(body))),
      head_(*this, *body_),
      num_layers(body_->config().num_hidden_layers),
      vocab_size(body_->config().vocab_size),
      hidden_size(body_->config().hidden_size) {}

ops::Logits CausalLM::logits(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                             double temperature, int adapter) const {
  return head_.logits(ops::select_rows(hidden, rows), temperature, adapter);
}

ScalarModel::ScalarModel(std::unique_ptr<Backbone> body)
    : body_((adopt("model", *body), std::move(body))), head_(*this, body_->config()) {}

void set_storage(nn::Module& model, const Storage& storage) {
  model.each_module([&](const std::string& path, nn::Module& module) {
    const auto keep = [&](nn::Parameter& weight, ops::WeightFormat format) {
      weight.set_format(format);
      weight.set_arithmetic(storage.arithmetic);
    };
    const bool head = path == "lm_head" || path == "score";
    if (auto* linear = dynamic_cast<nn::Linear*>(&module))
      keep(linear->weight, head ? storage.weights : storage.blocks.value_or(storage.weights));
    if (auto* embedding = dynamic_cast<nn::Embedding*>(&module))
      keep(embedding->weight, storage.weights);
  });
  set_cache_dtype(model, storage.cache_dtype);
}

void set_cache_dtype(nn::Module& model, ops::CacheDtype dtype) {
  model.each_module([&](const std::string&, nn::Module& module) {
    if (auto* attention = dynamic_cast<nn::Attention*>(&module)) attention->set_cache_dtype(dtype);
  });
}

std::unique_ptr<CausalLM> make_model(const HfConfig& config) {
  return std::make_unique<CausalLM>(family_of(config).make(config));
}

}  // namespace temper::models
