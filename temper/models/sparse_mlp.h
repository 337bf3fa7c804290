// A mixture of experts in the place of a block's MLP, and what its family says of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/decoder.h"
#include "temper/nn/experts.h"
#include "temper/nn/router.h"

namespace temper::models {

// Far more than any model has; what a damaged config asks for would take all memory.
constexpr int64_t kMostExperts = 4096;

struct SparseConfig {
  ops::RouterSpec router;
  int64_t width = 0;         // of an expert's inner layer
  std::vector<bool> layers;  // which have experts; the others have an MLP
  int64_t shared_width = 0;  // of an MLP that every token goes through beside its experts; 0: none
  bool shared_gate = false;  // whose output is multiplied by a sigmoid (`shared_expert_gate`)
  bool correction = false, router_bias = false;  // nn::Router
  bool expert_bias = false;
  ops::GatedUnit unit{};  // of the experts, but for its activation, which is the config's
  // Names of the module and of its router, as transformers has them.
  const char *module = "mlp", *gate = "gate", *shared = "shared_experts";
};

// The experts of a config: `key`, or where it is null num_local_experts, n_routed_experts or
// num_experts, is their number, num_experts_per_tok how many a token goes to; what the class of the
// family fills in is given. Throws ConfigError where a token goes to more than there are.
ops::RouterSpec read_router(const HfConfig& config, int64_t experts, int64_t chosen,
                            const char* key = nullptr);
// n_group, topk_group, norm_topk_prob and routed_scaling_factor of a router with sigmoids
// (DeepSeek-V3 and what follows it); where a key is missing, `spec` keeps its groups and scale.
// Throws ConfigError where groups do not divide the experts.
void read_sigmoid_router(const HfConfig& config, ops::RouterSpec& spec);
// The first layers have no experts: first_k_dense_replace of them, `usual` where the key is
// missing.
void dense_first(const HfConfig& config, int64_t usual, int64_t layers, SparseConfig& sparse);
// Layers that mlp_only_layers names have an MLP, and those that are no multiple of
// decoder_sparse_step, counted from 1.
std::vector<bool> sparse_layers(const HfConfig& config, int64_t layers);
// For Family::sanitize: without the layers behind the last one, which predict more than one token.
void drop_later_layers(TensorMap& tensors, int64_t layers);
// Makes the model of `c` a mixture.
void set_sparse(DecoderConfig& c, SparseConfig sparse);

class SparseMlp : public nn::Module {
 public:
  SparseMlp(nn::Module& parent, std::string name, const DecoderConfig& config, int64_t layer);
  at::Tensor forward(const ops::LinearInput& x, const nn::Context& context);

  nn::Router router;
  nn::Experts experts;
  std::optional<nn::GatedMlp> shared_experts;
  std::optional<nn::Linear> shared_gate;

 private:
  int64_t layer_;
};

}  // namespace temper::models
