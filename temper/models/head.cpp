#include "temper/models/head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/base/error.h"
#include "temper/nn/unit.h"
#include "temper/ops/host.h"
#include "temper/ops/layers/embedding.h"

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

std::vector<ops::HeadAdapter> VocabularyHead::adapters_of(
    const at::Tensor& x, const std::vector<nn::AdapterRows>& ranges) const {
  std::vector<ops::HeadAdapter> found;
  std::vector<ops::LinearOperand> low;
  for (const nn::AdapterRows& range : ranges) {
    nn::Lora* const lora = layer_.adapter(range.adapter);
    if (!lora) continue;
    low.push_back({lora->lora_A.weight.weight(), {}, {range.begin, range.end}});
    found.push_back({{}, lora->lora_B.weight.weight(), lora->scale, range.begin});
  }
  if (found.empty()) return found;
  const nn::Tensors products = ops::linear(ops::LinearInput::plain(x), low);
  for (size_t i = 0; i < found.size(); ++i) found[i].low = products[i];
  return found;
}

ops::HeadSpec VocabularyHead::spec(double temperature, bool entropy, bool log_sum_exp) const {
  return {.scale = scale_,
          .soft_cap = soft_cap_,
          .temperature = temperature,
          .entropy = entropy,
          .log_sum_exp = log_sum_exp,
          .ranks = weight_.placement() ? weight_.placement()->tensor : nullptr};
}

ops::TokenLogp VocabularyHead::token_logp(const at::Tensor& hidden,
                                          const std::vector<int64_t>& rows,
                                          const std::vector<int64_t>& target,
                                          const LogpOptions& options) const {
  LogpOptions whole = options;
  if (whole.adapter_rows.empty())
    whole.adapter_rows = {{options.adapter, 0, static_cast<int64_t>(rows.size())}};
  whole.adapter = whole.adapter_rows[0].adapter;
  for (const nn::AdapterRows& range : whole.adapter_rows) {
    // A unit passes on gradients of its own parameters alone.
    check<ConfigError>(
        !tied_head_ || !owner_.unit() || !at::GradMode::is_enabled() || !is_adapted(range.adapter),
        "adapter.target_modules: lm_head of a model whose head is tied to its "
        "embeddings does not train where ranks share out the weights (mesh.fsdp); "
        "leave lm_head out, or set mesh.fsdp: 1");
    if (&weight(range.adapter) != &weight(whole.adapter)) return apart(hidden, rows, target, whole);
  }
  return together(hidden, rows, target, whole);
}

ops::TokenLogp VocabularyHead::together(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                                        const std::vector<int64_t>& target,
                                        const LogpOptions& options) const {
  const nn::Tensors out =
      nn::run_unit(owner_, {ops::select_rows(hidden, rows)}, nn::adapters_of(options.adapter_rows),
                   false, [&](const nn::Tensors& inputs) {
                     ops::TokenLogp of = ops::token_logp(
                         spec(options.temperature, options.entropy, options.log_sum_exp), inputs[0],
                         weight(options.adapter).weight(), target, options.kept,
                         adapters_of(inputs[0], options.adapter_rows));
                     nn::Tensors found{of.logp};
                     if (options.entropy) found.push_back(of.entropy);
                     if (options.log_sum_exp) found.push_back(of.log_sum_exp);
                     return found;
                   });
  return {out[0], options.entropy ? out[1] : at::Tensor(),
          options.log_sum_exp ? out.back() : at::Tensor()};
}

ops::TokenLogp VocabularyHead::apart(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                                     const std::vector<int64_t>& target,
                                     const LogpOptions& options) const {
  check(!options.kept, "kept tokens of a pass of adapters that brought heads of their own");
  nn::Tensors logp, entropy, log_sum_exp;
  const int64_t of_row = rows.empty() ? 1 : std::ssize(target) / std::ssize(rows);
  for (const auto& [adapter, begin, end] : options.adapter_rows) {
    const auto own = [first = begin, last = end](const std::vector<int64_t>& all, int64_t times) {
      return std::vector<int64_t>(all.begin() + first * times, all.begin() + last * times);
    };
    LogpOptions one = options;
    one.adapter = adapter;
    one.adapter_rows = {{adapter, 0, end - begin}};
    const ops::TokenLogp part = together(hidden, own(rows, 1), own(target, of_row), one);
    logp.push_back(part.logp);
    if (options.entropy) entropy.push_back(part.entropy);
    if (options.log_sum_exp) log_sum_exp.push_back(part.log_sum_exp);
  }
  return {at::cat(logp), options.entropy ? at::cat(entropy) : at::Tensor(),
          options.log_sum_exp ? at::cat(log_sum_exp) : at::Tensor()};
}

ops::Logits VocabularyHead::logits_on_device(const at::Tensor& hidden, double temperature,
                                             int adapter) const {
  const at::NoGradGuard no_grad;
  ops::Logits logits;
  nn::run_unit(owner_, {hidden}, {adapter}, false, [&](const nn::Tensors& inputs) {
    logits = ops::logits(spec(temperature, false, false), inputs[0], weight(adapter).weight(),
                         adapters_of(inputs[0], {{adapter, 0, hidden.size(0)}}));
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
    : score_(owner, "score", config.hidden_size, 1, false, config.initializer_range) {
  score_.set_role(nn::Role::kHead);
}

at::Tensor ScalarHead::values(const at::Tensor& hidden, const std::vector<int64_t>& rows) {
  const at::Tensor values = score_.forward(ops::select_rows(hidden, rows), {}).flatten();
  return ops::to_host({values})[0];
}

}  // namespace temper::models
