#include "temper/models/head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/base/error.h"
#include "temper/nn/unit.h"
#include "temper/ops/embedding.h"
#include "temper/ops/host.h"

namespace temper::models {

VocabularyHead::VocabularyHead(nn::Module& owner, Backbone& body)
    : lm_head_(body.config().tie_word_embeddings
                   ? std::nullopt
                   : std::optional<nn::LmHead>(std::in_place, owner, "lm_head",
                                               body.config().hidden_size, body.config().vocab_size,
                                               body.config().initializer_range)),
      tied_head_(lm_head_ ? std::nullopt
                          : std::optional<nn::TiedHead>(std::in_place, owner, "lm_head",
                                                        body.embedding().weight)),
      layer_(lm_head_ ? static_cast<nn::Linear&>(*lm_head_) : *tied_head_),
      owner_(lm_head_ ? static_cast<nn::Module&>(*lm_head_) : body.embedding()),
      weight_(lm_head_ ? lm_head_->weight : body.embedding().weight),
      versions_(lm_head_ ? lm_head_->versions : body.embedding().versions),
      scale_(body.config().logit_scale),
      soft_cap_(body.config().final_soft_cap) {}

const nn::Parameter& VocabularyHead::weight(int adapter) const {
  return versions_.at(weight_, adapter);
}

ops::HeadAdapter VocabularyHead::adapter_of(const at::Tensor& rows, int adapter) const {
  nn::Lora* const lora = layer_.adapter(adapter);
  return lora ? lora->of_head(rows) : ops::HeadAdapter();
}

ops::HeadSpec VocabularyHead::spec(double temperature, bool entropy, bool log_sum_exp) const {
  return {.scale = scale_,
          .soft_cap = soft_cap_,
          .temperature = temperature,
          .entropy = entropy,
          .log_sum_exp = log_sum_exp,
          .ranks = weight_.placement() ? weight_.placement()->tensor : nullptr};
}

ops::TokenLogp VocabularyHead::token_logp(
    const at::Tensor& hidden, const std::vector<int64_t>& rows, const std::vector<int64_t>& target,
    double temperature, bool entropy, bool log_sum_exp, int adapter,
    const std::shared_ptr<const ops::KeptTokens>& kept) const {
  // A unit passes on gradients of its own parameters alone.
  check<ConfigError>(
      !tied_head_ || !owner_.unit() || !at::GradMode::is_enabled() || !is_adapted(adapter),
      "adapter.target_modules: lm_head of a model whose head is tied to its "
      "embeddings does not train where ranks share out the weights (mesh.fsdp); "
      "leave lm_head out, or set mesh.fsdp: 1");
  const nn::Tensors out = nn::run_unit(
      owner_, {ops::select_rows(hidden, rows)}, adapter, false, [&](const nn::Tensors& inputs) {
        ops::TokenLogp of =
            ops::token_logp(spec(temperature, entropy, log_sum_exp), inputs[0],
                            weight(adapter).weight(), target, kept, adapter_of(inputs[0], adapter));
        nn::Tensors found{of.logp};
        if (entropy) found.push_back(of.entropy);
        if (log_sum_exp) found.push_back(of.log_sum_exp);
        return found;
      });
  return {out[0], entropy ? out[1] : at::Tensor(), log_sum_exp ? out.back() : at::Tensor()};
}

ops::Logits VocabularyHead::logits_on_device(const at::Tensor& hidden, double temperature,
                                             int adapter) const {
  const at::NoGradGuard no_grad;
  ops::Logits logits;
  nn::run_unit(owner_, {hidden}, adapter, false, [&](const nn::Tensors& inputs) {
    logits = ops::logits(spec(temperature, false, false), inputs[0], weight(adapter).weight(),
                         adapter_of(inputs[0], adapter));
    return nn::Tensors();
  });
  return logits;
}

ops::Logits VocabularyHead::logits(const at::Tensor& hidden, double temperature,
                                   int adapter) const {
  const ops::Logits logits = logits_on_device(hidden, temperature, adapter);
  const nn::Tensors here =
      ops::to_host({logits.logits, logits.log_sum_exp, logits.block_max, logits.block_sum});
  return {here[0], here[1], here[2], here[3], logits.rank_columns};
}

ScalarHead::ScalarHead(nn::Module& owner, const ModelConfig& config)
    : score_(owner, "score", config.hidden_size, 1, false, config.initializer_range) {}

at::Tensor ScalarHead::values(const at::Tensor& hidden, const std::vector<int64_t>& rows) {
  const at::Tensor values = score_.forward(ops::select_rows(hidden, rows), {}).flatten();
  return ops::to_host({values})[0];
}

}  // namespace temper::models
