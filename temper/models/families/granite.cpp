// Granite 3 (IBM): Llama with four factors, as maximal update parametrization has them (Yang et
// al., arXiv 2203.03466).
//   x = embedding_multiplier embed(token)
//   h = x + residual_multiplier o(attend(q, k, v)), whose scores are attention_multiplier q·k
//   y = h + residual_multiplier down(silu(gate(n2 h)) * up(n2 h))
//   logits = head(norm(y)) / logits_scaling
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/models/families/common.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/gguf/gguf_form.h"

namespace temper::models {

void apply_granite_factors(const HfConfig& config, DecoderConfig& c) {
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.embedding_scale = config.number("embedding_multiplier", 1);
  c.residual_scale = config.number("residual_multiplier", 1);
  c.attention.scale = config.number("attention_multiplier", 1);
  const double divisor = config.number("logits_scaling", 1);
  if (divisor == 0) config.fail("logits_scaling", "found 0, which logits are divided by");
  c.logit_scale = 1 / divisor;
  c.rotary = config.rotary(10000, c.max_position_embeddings);
}

// llama.cpp takes a factor of 0 for none.
void add_granite_factors(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  if (c.embedding_scale == 0) form.refuse(source, "embedding_multiplier", "0");
  if (c.residual_scale == 0) form.refuse(source, "residual_multiplier", "0");
  if (c.attention.scale == 0) form.refuse(source, "attention_multiplier", "0");
  form.set_real("embedding_scale", c.embedding_scale);
  form.set_real("residual_scale", c.residual_scale);
  form.set_real("logit_scale", 1 / c.logit_scale);
}

void read_granite_factors(const GgufSource& source, Json& config) {
  config["embedding_multiplier"] = source.real("embedding_scale", 1);
  config["residual_multiplier"] = source.real("residual_scale", 1);
  config["logits_scaling"] = source.real("logit_scale", 1);
  config["attention_multiplier"] =
      source.real("attention.scale", 1 / std::sqrt(config["head_dim"].get<double>()));
}

namespace {

DecoderConfig granite_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 32000,
                           .hidden_size = 4096,
                           .intermediate_size = 11008,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .max_position_embeddings = 2048});
  apply_granite_factors(config, c);
  c.mlp_bias = config.boolean("mlp_bias", false);
  return c;
}

const RegisteredFamily kGranite(
    {.model_type = "granite",
     .help = "Granite 3: factors of embeddings, residuals, scores and logits",
     .paper = "arXiv 2203.03466",
     .config = &granite_config,
     .causal_lm = "GraniteForCausalLM",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "granite",
                              .interleaved = true,
                              .rope_factors = true,
                              .output_bias = true,
                              .mlp_bias = true,
                              .scale_key = true,
                              .add = &add_granite_factors,
                              .read = &read_granite_factors}});

}  // namespace
}  // namespace temper::models
