// Qwen2 and Qwen2.5 (arXiv 2407.10671): Llama with biases on q, k and v.
#include "temper/models/llama.h"

namespace temper::models {

std::unique_ptr<CausalLM> make_qwen2(const HfConfig& config) {
  LlamaConfig c(config);
  c.attention_bias = false;
  c.qkv_bias = true;
  return make_llama(c);
}

}  // namespace temper::models
