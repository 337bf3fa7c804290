// Heads: what hidden states are for.
#pragma once

#include <optional>
#include <vector>

#include "temper/models/backbone.h"
#include "temper/ops/logits/token_logp.h"

namespace temper::models {

// What token_logp gives, and of which distribution.
struct LogpOptions {
  double temperature = 1;    // logits are divided by it
  bool entropy = false;      // in nats, too
  bool log_sum_exp = false;  // the logarithm of the softmax's denominator, too
  // That of the forward pass (nn::Context::adapter): it may have brought a head. Of a pass of
  // several: the ranges of the targets.
  int adapter = 0;
  std::vector<nn::AdapterRows> adapter_rows = {};
  std::shared_ptr<const ops::KeptTokens> kept = nullptr;  // as ops::token_logp
};

// Log-probabilities of the next token. The weight [vocabulary, hidden] is `lm_head.weight` of the
// owner, or the embedding's own where they are tied.
class VocabularyHead {
 public:
  VocabularyHead(nn::Module& owner, Backbone& body);

  // log p of target[i] after row rows[i] of `hidden`, and what else is asked for, where the weights
  // lie. Several targets a row, as ops::token_logp: ranges of adapters are then of rows. Throws
  // RunError for kept tokens of a pass of adapters that brought heads of their own.
  ops::TokenLogp token_logp(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                            const std::vector<int64_t>& target, const LogpOptions& options) const;
  // Logits after every row of `hidden`, scaled, soft-capped and divided by the temperature: where
  // the weights lie, and in the host's memory.
  ops::Logits logits_on_device(const at::Tensor& hidden, double temperature, int adapter) const;
  ops::Logits logits(const at::Tensor& hidden, double temperature, int adapter) const;

  // [vocabulary, hidden]: the model's own, or what an adapter put in its place.
  const nn::Parameter& weight(int adapter) const;

  // Whether an adapter is on the head.
  bool is_adapted(int adapter) const { return layer_.adapter(adapter) != nullptr; }

 private:
  ops::HeadSpec spec(double temperature, bool entropy, bool log_sum_exp) const;
  // token_logp() where all targets have the same head's weight, and where they do not.
  ops::TokenLogp together(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                          const std::vector<int64_t>& target, const LogpOptions& options) const;
  ops::TokenLogp apart(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                       const std::vector<int64_t>& target, const LogpOptions& options) const;
  // What the adapters of ranges of x [M, hidden] add.
  std::vector<ops::HeadAdapter> adapters_of(const at::Tensor& x,
                                            const std::vector<nn::AdapterRows>& ranges) const;

  std::optional<nn::LmHead> lm_head_;
  std::optional<nn::TiedHead> tied_head_;
  nn::Linear& layer_;  // one of the two
  nn::Module& owner_;  // of the weight: the head's own, or the embedding
  const nn::Parameter& weight_;
  const nn::WeightVersions& versions_;  // the weight's own
  double scale_, soft_cap_;
};

// One number a token, `score.weight` [1, hidden] without a bias: a reward or a value, as
// transformers' ...ForSequenceClassification has it with num_labels 1.
class ScalarHead {
 public:
  ScalarHead(nn::Module& owner, const ModelConfig& config);

  // [M], of rows[i] of `hidden`, in the host's memory; differentiable.
  at::Tensor values(const at::Tensor& hidden, const std::vector<int64_t>& rows);

 private:
  nn::Linear score_;
};

}  // namespace temper::models
