// Mistral (Jiang et al., arXiv 2310.06825): Llama, whose first version attends to a window in every
// layer.
//   h = x + o(attend(rotate(q(n1 x)), rotate(k(n1 x)), v(n1 x)))
//   y = h + down(silu(gate(n2 h)) * up(n2 h))
#include "temper/models/decoder.h"

namespace temper::models {
namespace {

DecoderConfig mistral_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 32000,
                           .hidden_size = 4096,
                           .intermediate_size = 14336,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 8,
                           .max_position_embeddings = 4096 * 32});
  const int64_t window = window_or_none(config, 4096);
  c.window.assign(c.window.size(), window);
  // With layer_types transformers takes it for a `ministral`, unless it is within a multimodal one.
  if (!config.multimodal())
    c.window =
        windows_of(config, c.num_hidden_layers, window, [](int64_t /*layer*/) { return true; });
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  return c;
}

const RegisteredFamily kMistral(
    {.model_type = "mistral",
     .help = "Mistral 7B, Nemo and Small, also of a `mistral3`: windows in the first version",
     .paper = "arXiv 2310.06825",
     .config = &mistral_config,
     .causal_lm = "MistralForCausalLM",
     .sequence_classification = "MistralForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{
         .name = "llama", .interleaved = true, .rope_factors = true, .reads = false}});

}  // namespace
}  // namespace temper::models
