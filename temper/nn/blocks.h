// The two halves of a transformer block as the Llama and Gemma families share them. A family's file
// wires them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "temper/nn/linear.h"
#include "temper/nn/rotary.h"

namespace temper::nn {

struct AttentionConfig {
  int64_t hidden_size = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, o_bias = false;
  bool qk_norm = false, norm_one_plus = false;
  double norm_eps = 1e-6;
  double scale = 1;
  double soft_cap = 0;
  int64_t window = 0;
  double init_std = 0.02;
};

class Attention : public Module {
 public:
  // `layer` finds the cache's pages; `rotary` is shared by the layers that rotate alike.
  Attention(Module& parent, std::string name, const AttentionConfig& config, int64_t layer,
            std::shared_ptr<Rotary> rotary);
  // Of Context::rows.
  at::Tensor forward(const ops::LinearInput& x, const Context& context);

  // Queries and keys as projected, and how attention reads them: all that its probabilities are
  // made of.
  struct Heads {
    ops::AttentionSpec spec;
    ops::RotaryTable rotary;
    at::Tensor q, k;  // [N, num_heads * head_dim], [N, num_kv_heads * head_dim]
  };
  Heads heads(const ops::LinearInput& x, const Context& context);

  Linear q_proj, k_proj, v_proj, o_proj;
  std::optional<RmsNorm> q_norm, k_norm;

  ops::AttentionSpec spec() const;
  // Number type that keys (after norm and rotary embedding) and values are rounded to in every
  // forward pass, and in which a sampler caches them. Before a cache is made for the model.
  void set_cache_dtype(ops::CacheDtype dtype) { cache_dtype_ = dtype; }
  // Before it has values: this rank keeps its part of the heads. Throws ConfigError, of `where`,
  // where heads or key and value heads do not divide.
  void split(const std::shared_ptr<dist::Group>& group, const std::string& where);

 protected:
  void accept(const std::string& path, const LayerVisitor& visitor) override;

 private:
  ops::RotaryTable table(const Context& context, const at::Tensor& q);

  AttentionConfig config_;
  ops::CacheDtype cache_dtype_ = ops::CacheDtype::kFloat32;
  int64_t layer_;
  std::shared_ptr<Rotary> rotary_;
};

class GatedMlp : public Module {
 public:
  GatedMlp(Module& parent, std::string name, int64_t hidden, int64_t intermediate, bool bias,
           ops::Activation activation, double init_std);
  at::Tensor forward(const ops::LinearInput& x, const Context& context);

  Linear gate_proj, up_proj, down_proj;

 private:
  ops::Activation activation_;
};

}  // namespace temper::nn
