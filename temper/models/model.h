// A causal language model: what every family is to the rest of the program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/models/hf_config.h"
#include "temper/nn/blocks.h"
#include "temper/ops/token_logp.h"

namespace temper::models {

class CausalLM : public nn::Module {
 public:
  // Hidden states after the final norm, [N, hidden_size], of every token of the batch.
  virtual at::Tensor forward(const nn::Context& context) = 0;

  // The head's weight [vocabulary, hidden]: the embedding's own where they are tied.
  virtual nn::Parameter& head() = 0;
  virtual ops::AttentionSpec
  attention_spec() = 0;  // of the first layer: what a cache page has to hold
  virtual double final_soft_cap() const { return 0; }

  int64_t num_layers = 0, vocab_size = 0, hidden_size = 0, max_positions = 0;
  std::vector<int32_t> eos_token_ids;

  ops::HeadSpec head_spec(double temperature = 1, bool entropy = false, bool log_sum_exp = false);
  // log p of target[i] after row rows[i] of `hidden`.
  ops::TokenLogp token_logp(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                            const std::vector<int64_t>& target, double temperature = 1,
                            bool entropy = false, bool log_sum_exp = false);
};

// From here on linear layers, embedding and head compute with their weights rounded to bfloat16;
// sums and activations stay float32, and so do the weights themselves, norms, biases and adapters.
void compute_in_bfloat16(CausalLM& model);

struct Family {
  const char* model_type;
  std::unique_ptr<CausalLM> (*make)(const HfConfig&);
  const char* help;
};

// The families of this program and those that were registered; `temper list models` prints them.
const std::vector<Family>& families();
// Throws ConfigError for a model_type that is taken. Before any model is made.
void register_family(Family family);

// A model without values. Throws ConfigError for an unknown family, naming those that are known.
std::unique_ptr<CausalLM> make_model(const HfConfig& config);

std::unique_ptr<CausalLM> make_llama(const HfConfig&);
std::unique_ptr<CausalLM> make_qwen2(const HfConfig&);
std::unique_ptr<CausalLM> make_qwen3(const HfConfig&);
std::unique_ptr<CausalLM> make_gemma(const HfConfig&);
std::unique_ptr<CausalLM> make_gemma2(const HfConfig&);
std::unique_ptr<CausalLM> make_gemma3_text(const HfConfig&);

}  // namespace temper::models
