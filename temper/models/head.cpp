#include "temper/models/head.h"

#include <ATen/ATen.h>

#include "temper/ops/embedding.h"

namespace temper::models {

namespace {
// The weight that the head reads: its own, made here, or the embedding's.
const nn::Parameter& head_weight(nn::Module& owner, Backbone& body,
                                 std::optional<LmHead>& lm_head) {
  const ModelConfig& c = body.config();
  if (c.tie_word_embeddings) return body.embedding().weight;
  return lm_head.emplace(owner, "lm_head", c.hidden_size, c.vocab_size, false, c.initializer_range)
      .weight;
}
}  // namespace

VocabularyHead::VocabularyHead(nn::Module& owner, Backbone& body)
    : weight_(head_weight(owner, body, lm_head_)),
      versions_(lm_head_ ? lm_head_->versions : body.embedding().versions),
      soft_cap_(body.config().final_soft_cap) {}

const nn::Parameter& VocabularyHead::weight(int adapter) const {
  return versions_.at(weight_, adapter);
}

ops::HeadSpec VocabularyHead::spec(double temperature, bool entropy, bool log_sum_exp) const {
  return {.soft_cap = soft_cap_,
          .temperature = temperature,
          .entropy = entropy,
          .log_sum_exp = log_sum_exp};
}

ops::TokenLogp VocabularyHead::token_logp(const at::Tensor& hidden,
                                          const std::vector<int64_t>& rows,
                                          const std::vector<int64_t>& target, double temperature,
                                          bool entropy, bool log_sum_exp, int adapter) const {
  return ops::token_logp(spec(temperature, entropy, log_sum_exp), ops::select_rows(hidden, rows),
                         weight(adapter).weight(), target);
}

ops::Logits VocabularyHead::logits(const at::Tensor& hidden, double temperature,
                                   int adapter) const {
  return ops::logits(spec(temperature, false, false), hidden, weight(adapter).weight());
}

ScalarHead::ScalarHead(nn::Module& owner, const ModelConfig& config)
    : score_(owner, "score", config.hidden_size, 1, false, config.initializer_range) {}

at::Tensor ScalarHead::values(const at::Tensor& hidden, const std::vector<int64_t>& rows) {
  return score_.forward(ops::select_rows(hidden, rows), {}).flatten();
}

}  // namespace temper::models
