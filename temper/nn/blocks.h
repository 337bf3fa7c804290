// The two halves of a transformer block as the families share them. A family's file wires them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/nn/linear.h"
#include "temper/nn/rotary.h"

namespace temper::nn {

struct AttentionConfig {
  int64_t hidden_size = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, o_bias = false;
  bool joined_qkv = false;  // queries, keys and values are one layer, `qkv_proj` (Phi 3)
  bool qk_norm = false, norm_one_plus = false;
  bool qk_norm_is_whole = false;  // of all heads' features at once, not of each head (OLMo 2)
  bool norm_rotated = false;      // of a head's features after rotary embedding (Hunyuan)
  bool sinks = false;             // ops::AttentionSpec
  // q_proj gives each head's query, then as many numbers whose sigmoids its output is multiplied by
  // (Qwen3-Next).
  bool output_gate = false;
  const char* o_proj_name = "o_proj";
  const char *q_norm_name = "q_norm", *k_norm_name = "k_norm";
  // Gemma 4. Keys are normalised, and values too (without a weight), by head and before they are
  // shared: a layer that shares has no keys and values of its own. Or values are what k_proj gives.
  bool norm_values = false, shares_keys = false, keys_are_values = false;
  bool causal = false;  // ops::AttentionSpec
  double norm_eps = 1e-6;
  double scale = 1;
  double soft_cap = 0;
  int64_t window = 0;
  double init_std = 0.02;
};

class Attention : public Module {
 public:
  // `layer` finds the cache's pages, of the layer whose keys it shares; `rotary` is shared by the
  // layers that rotate alike, null for a layer without positions.
  Attention(Module& parent, std::string name, const AttentionConfig& config, int64_t layer,
            std::shared_ptr<Rotary> rotary);
  // Keys and values of a layer, [N, num_kv_heads * head_dim], before rotary embedding.
  struct KeysAndValues {
    at::Tensor k, v;
  };
  // Of Context::rows. Where `shared` is given, a layer with keys of its own sets it, and one
  // without reads it.
  at::Tensor forward(const ops::LinearInput& x, const Context& context,
                     KeysAndValues* shared = nullptr);

  // Queries and keys as projected (normalized where the norm is over all heads), and how attention
  // reads them: all that its probabilities are made of.
  struct Heads {
    ops::AttentionSpec spec;
    ops::RotaryTable rotary;
    at::Tensor q, k;  // [N, num_heads * head_dim], [N, num_kv_heads * head_dim]
  };
  Heads heads(const ops::LinearInput& x, const Context& context);

  // q_proj, k_proj and v_proj, those of them that there are, or qkv_proj; none where a derived
  // class projects otherwise.
  const std::vector<std::unique_ptr<Linear>> projections;
  Linear o_proj;
  std::optional<RmsNorm> q_norm, k_norm;
  std::optional<Parameter> sinks;  // [num_heads]

  // How a cache holds its keys and values, and a pass over one reads them.
  virtual ops::AttentionSpec spec() const;
  // Number type that keys (after norm and rotary embedding) and values are rounded to in every
  // forward pass, and in which a sampler caches them. Before a cache is made for the model.
  void set_cache_dtype(ops::CacheDtype dtype) { cache_dtype_ = dtype; }
  // Before it has values: this rank keeps its part of the heads. Throws ConfigError, of `where`,
  // where heads or key and value heads do not divide.
  virtual void split(const std::shared_ptr<dist::Group>& group, const std::string& where);

 protected:
  // Without projections of its own; o_proj reads `value_dim` features of each head.
  Attention(Module& parent, std::string name, const AttentionConfig& config, int64_t layer,
            std::shared_ptr<Rotary> rotary, int64_t value_dim);
  void accept(const std::string& path, const LayerVisitor& visitor) override;
  // spec() for this pass, of which the two functions below are.
  virtual ops::AttentionSpec spec_in(const Context& /*context*/) { return spec(); }
  // Queries, and keys and values where the layer has its own, [N, heads * head_dim]; without values
  // where they are not asked for, or are in the keys. Sets `gate` [N, num_heads * head_dim] where
  // there is one.
  virtual std::vector<at::Tensor> project_heads(const ops::LinearInput& x, const Context& context,
                                                bool values, at::Tensor& gate);
  // What o_proj reads of attention's output [rows, num_heads * head_dim]; the context is of these
  // rows.
  virtual at::Tensor read_values(const at::Tensor& attended, const Context& /*context*/) {
    return attended;
  }
  const AttentionConfig& config() const { return config_; }

 private:
  ops::RotaryTable table(const Context& context, const at::Tensor& q);
  at::Tensor norm_heads(const at::Tensor& x, const at::Tensor& weight) const;

  AttentionConfig config_;
  ops::CacheDtype cache_dtype_ = ops::CacheDtype::kFloat32;
  int64_t layer_;
  std::shared_ptr<Rotary> rotary_;
};

// Of the layers of a gated MLP.
struct MlpNames {
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
};

// down(act(gate(x)) * up(x)).
class GatedMlp : public Module {
 public:
  // joined: gate and up are one layer, `gate_up_proj` (Phi 3).
  GatedMlp(Module& parent, std::string name, int64_t hidden, int64_t intermediate, bool bias,
           ops::Activation activation, double init_std, bool joined = false,
           const MlpNames& names = {});
  at::Tensor forward(const ops::LinearInput& x, const Context& context);

  // gate_proj and up_proj, or gate_up_proj.
  const std::vector<std::unique_ptr<Linear>> projections;
  Linear down_proj;

 private:
  ops::Activation activation_;
};

}  // namespace temper::nn
