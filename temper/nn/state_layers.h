// Layers that carry a state from token to token, in the place that attention has in a block
// (ops/layers/recurrent.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/nn/linear.h"
#include "temper/ops/layers/recurrent.h"

namespace temper::nn {

class StateLayer : public Module {
 public:
  // `layer` finds the states of sampled sequences.
  StateLayer(Module& parent, std::string name, int64_t layer)
      : Module(parent, std::move(name)), layer_(layer) {
    set_role(Role::kState);
  }
  // x [N, hidden_size] to [R, hidden_size]: of Context::rows.
  virtual at::Tensor forward(const ops::LinearInput& x, const Context& context) = 0;
  // Numbers of each operation's state, of this rank's part.
  virtual std::vector<int64_t> state_sizes() const = 0;
  // Numbers of a token that ranks exchange where they divide tokens: those that its operations
  // read, and those that they give.
  virtual int64_t exchanged_width() const = 0;
  // The heads of the last operation's state, each a matrix; 0: it has none.
  virtual int64_t heads() const { return 0; }
  // As Attention::split.
  virtual void split(const std::shared_ptr<dist::Group>& group, const std::string& where) = 0;

 protected:
  void accept(const std::string& path, const LayerVisitor& visitor) override;
  // What sampled sequences carry of the part-th operation; none in any other pass.
  ops::CarriedStates states(const Context& context, int64_t part) const;

 private:
  int64_t layer_;
};

// A causal convolution of each channel, named as torch.nn.Conv1d. Ranks divide the channels.
class Convolution : public Module {
 public:
  Convolution(Module& parent, std::string name, int64_t channels, int64_t taps, bool bias,
              double init_std);
  ops::ConvolutionWeights weights() const;
  int64_t state_size() const { return weight.shape()[0] * (weight.shape()[2] - 1); }
  // `joined` as Linear::set_joined.
  void split(const std::shared_ptr<dist::Group>& group, const std::vector<int64_t>& joined = {});

  Parameter weight;               // [channels, 1, taps]
  std::optional<Parameter> bias;  // [channels]
};

// LFM2's short convolution (arXiv 2511.23404): with (B, C, u) = in_proj(x)
//   y = out_proj(C * conv(B * u))
class ShortConvolution : public StateLayer {
 public:
  ShortConvolution(Module& parent, std::string name, int64_t layer, int64_t hidden, int64_t taps,
                   bool bias, double init_std);
  at::Tensor forward(const ops::LinearInput& x, const Context& context) override;
  std::vector<int64_t> state_sizes() const override { return {conv.state_size()}; }
  int64_t exchanged_width() const override { return 2 * conv.weight.shape()[0]; }
  void split(const std::shared_ptr<dist::Group>& group, const std::string& where) override;

  Convolution conv;
  Linear in_proj, out_proj;

 private:
  at::Tensor convolved(const at::Tensor& x, const Context& context);
};

struct DeltaNetConfig {
  int64_t hidden_size = 0, taps = 0;
  ops::DeltaRuleSpec rule;
  double norm_eps = 1e-6, init_std = 0.02;
  // Queries, keys, values and the output's gate are one layer, `in_proj_qkvz`, and rates and decays
  // another, `in_proj_ba`; their outputs lie together by key head (Qwen3-Next).
  bool joined = false;
};

// Gated delta net (Yang et al., arXiv 2412.06464) as Qwen3-Next has it: with (q, k, v) =
// silu(conv1d(in_proj_qkv(x)))
//   y = out_proj(silu(in_proj_z(x)) * norm(delta_rule(q, k, v, in_proj_a(x), in_proj_b(x))))
class GatedDeltaNet : public StateLayer {
 public:
  GatedDeltaNet(Module& parent, std::string name, int64_t layer, const DeltaNetConfig& config);
  at::Tensor forward(const ops::LinearInput& x, const Context& context) override;
  std::vector<int64_t> state_sizes() const override;
  int64_t exchanged_width() const override {
    return rule_.qkv_width() + (2 + rule_.value_dim) * rule_.value_heads;
  }
  int64_t heads() const override { return rule_.value_heads; }
  void split(const std::shared_ptr<dist::Group>& group, const std::string& where) override;

  Parameter dt_bias, A_log;  // [value_heads]
  Convolution conv1d;
  RmsNorm norm;  // of each head's output
  Linear out_proj;
  // in_proj_qkv, in_proj_z, in_proj_b and in_proj_a; or in_proj_qkvz and in_proj_ba.
  const std::vector<std::unique_ptr<Linear>> projections;

 private:
  struct Projected {
    at::Tensor qkv, z, b, a;
  };
  Projected project_all(const ops::LinearInput& x, const Context& context);
  // [n, value_heads * value_dim], before the norm.
  at::Tensor recurrence(const Projected& in, const Context& context);

  ops::DeltaRuleSpec rule_;
};

}  // namespace temper::nn
