#include "temper/models/model.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/ops/embedding.h"

namespace temper::models {

ops::HeadSpec CausalLM::head_spec(double temperature, bool entropy, bool log_sum_exp) {
  return {.soft_cap = final_soft_cap(),
          .temperature = temperature,
          .entropy = entropy,
          .log_sum_exp = log_sum_exp,
          .bfloat16 = head().bfloat16(),
          .panels = head().panels()};
}

ops::TokenLogp CausalLM::token_logp(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                                    const std::vector<int64_t>& target, double temperature,
                                    bool entropy, bool log_sum_exp) {
  return ops::token_logp(head_spec(temperature, entropy, log_sum_exp),
                         ops::select_rows(hidden, rows), head().value(), target);
}

void compute_in_bfloat16(CausalLM& model) {
  model.each_module([](const std::string&, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) linear->weight.set_bfloat16(true);
    if (auto* embedding = dynamic_cast<nn::Embedding*>(&module))
      embedding->weight.set_bfloat16(true);
  });
}

static std::vector<Family>& table() {
  static std::vector<Family> families{
      {"llama", &make_llama, "Llama 2 and 3.x, with llama3 or linear rope scaling"},
      {"qwen2", &make_qwen2, "Qwen2 and Qwen2.5: biases on q, k and v"},
      {"qwen3", &make_qwen3, "Qwen3: norms on q and k"},
      {"gemma", &make_gemma, "Gemma: norms that multiply by 1 + weight, scaled embeddings"},
      {"gemma2", &make_gemma2, "Gemma 2: soft caps, alternating windows, pre and post norms"},
      {"gemma3_text", &make_gemma3_text,
       "Gemma 3's language model: five local layers to one global, two rotary bases"},
  };
  return families;
}

const std::vector<Family>& families() { return table(); }

void register_family(Family family) {
  for (const Family& known : table())
    check<ConfigError>(std::string_view(known.model_type) != family.model_type, "a model family `",
                       family.model_type, "` is there already");
  table().push_back(family);
}

std::unique_ptr<CausalLM> make_model(const HfConfig& config) {
  std::string known;
  for (const Family& family : families()) {
    if (config.model_type() == family.model_type) {
      std::unique_ptr<CausalLM> model = family.make(config);
      model->vocab_size = config.integer("vocab_size");
      model->hidden_size = config.integer("hidden_size");
      model->num_layers = config.integer("num_hidden_layers");
      model->max_positions = config.integer("max_position_embeddings", 0 + 2048);
      return model;
    }
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  config.fail("model_type", "`" + config.model_type() +
                                "` is not a family that this program knows; expected one of " +
                                known);
}

}  // namespace temper::models
