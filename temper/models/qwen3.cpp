// Qwen3 (arXiv 2505.09388): Llama with an RMSNorm over each head's query and key, and a head_dim of
// its own.
#include "temper/models/llama.h"

namespace temper::models {

std::unique_ptr<CausalLM> make_qwen3(const HfConfig& config) {
  LlamaConfig c(config);
  c.head_dim = config.integer("head_dim", 128);
  c.qk_norm = true;
  return make_llama(c);
}

}  // namespace temper::models
