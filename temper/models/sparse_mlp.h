// A mixture of experts in place of a block's MLP, and its configuration.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/decoder.h"
#include "temper/nn/experts.h"
#include "temper/nn/router.h"

namespace temper::models {

// An upper bound, far above any model's, so that a damaged config cannot ask for all memory.
constexpr int64_t kMostExperts = 4096;

struct SparseConfig {
  ops::RouterSpec router;
  int64_t width = 0;         // intermediate size of an expert
  std::vector<bool> layers;  // which layers have experts; the others have an MLP
  int64_t shared_width =
      0;  // intermediate size of the shared expert, which sees all tokens; 0: none
  bool shared_gate = false;  // multiply the shared expert's output by a sigmoid gate
  bool correction = false, router_bias = false;  // nn::Router's `correction` and `bias`
  bool expert_bias = false;                      // the experts' linear layers have biases
  ops::GatedUnit unit{};  // of the experts; its activation is replaced by the config's
  // Names of the module, of its router and of the shared expert in transformers.
  const char *module = "mlp", *gate = "gate", *shared = "shared_experts";
};

// Reads the number of experts from `key` (null: num_local_experts, n_routed_experts or num_experts,
// whichever is there) and the experts per token from num_experts_per_tok. `experts` and `chosen`
// are the defaults of transformers' config class. Throws ConfigError where a token has more experts
// than there are.
ops::RouterSpec read_router(const HfConfig& config, int64_t experts, int64_t chosen,
                            const char* key = nullptr);
// Reads n_group, topk_group, norm_topk_prob and routed_scaling_factor of a sigmoid router, as
// DeepSeek-V3 has it; where a key is missing, `spec` keeps its value. Throws ConfigError unless the
// number of groups divides the number of experts.
void read_sigmoid_router(const HfConfig& config, ops::RouterSpec& spec);
// Sets sparse.layers: the first first_k_dense_replace layers (`usual` where the key is missing)
// have no experts.
void dense_first(const HfConfig& config, int64_t usual, int64_t layers, SparseConfig& sparse);
// Which layers have experts: those whose number, counted from 1, is a multiple of
// decoder_sparse_step, except the ones that mlp_only_layers names.
std::vector<bool> sparse_layers(const HfConfig& config, int64_t layers);
// For Family::sanitize: drops the layers after the last one, which do multi-token prediction.
void drop_later_layers(TensorMap& tensors, int64_t layers);
// Turns the model of `c` into a mixture of experts.
void set_sparse(DecoderConfig& c, SparseConfig sparse);

class SparseMlp : public nn::Module {
 public:
  SparseMlp(nn::Module& parent, std::string name, const DecoderConfig& config, int64_t layer);
  at::Tensor forward(const ops::LinearInput& x, const nn::Context& context);

  // Whether forward() may run over some rows after the other, to the same bits: not where a loss
  // sums over all rows, nor where a product joins an expert's rows in blocks.
  bool treats_rows_alone(const nn::Context& context);

  nn::Router router;
  nn::Experts experts;
  std::optional<nn::GatedMlp> shared_experts;
  std::optional<nn::Linear> shared_gate;

 private:
  int64_t layer_;
};

}  // namespace temper::models
