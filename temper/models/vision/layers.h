// Layers that vision towers share. Linear layers, attention and norms are those of nn and ops.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/nn/linear.h"
#include "temper/nn/rotary.h"
#include "temper/ops/layers/attention.h"

namespace temper::models {

// Ba et al., arXiv 1607.06450, with a bias.
class LayerNorm : public nn::Module {
 public:
  LayerNorm(nn::Module& parent, std::string name, int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x) const;  // [N, width]

  nn::Parameter weight, bias;  // [width]

 private:
  double eps_;
};

// A table of rows that are looked up: learned positions.
class PositionTable : public nn::Module {
 public:
  PositionTable(nn::Module& parent, std::string name, int64_t rows, int64_t width);
  // Row i of the result is the sum over taps of weight[i] times row id[i] of the table, in order.
  struct Tap {
    std::vector<int64_t> id;
    std::vector<float> weight;
  };
  at::Tensor forward(const std::vector<Tap>& taps) const;

  nn::Parameter weight;  // [rows, width]
};

// act(x), element by element.
at::Tensor activated(const at::Tensor& x, ops::Activation activation);

// fc2(act(fc1(x))), both with a bias.
class TwoLayers : public nn::Module {
 public:
  struct Names {
    const char *first = "linear_fc1", *second = "linear_fc2";
  };
  // Its layers are the parent's own.
  TwoLayers(nn::Module& parent, const Names& names, int64_t in, int64_t inner, int64_t out,
            ops::Activation activation);
  at::Tensor forward(const at::Tensor& x, const nn::Context& context);

  nn::Linear first, second;

 private:
  ops::Activation activation_;
};

// Attention both ways, of all heads alike.
class TowerAttention : public nn::Module {
 public:
  struct Config {
    int64_t hidden_size, num_heads, head_dim;
    bool joined = false;  // queries, keys and values are one layer, `qkv`
    bool bias = true;
    const char* out_name = "out_proj";
  };
  TowerAttention(nn::Module& parent, std::string name, const Config& config);
  // The context's forest says which tokens see one another (all_open).
  at::Tensor forward(const at::Tensor& x, const nn::Context& context,
                     const ops::RotaryTable& rotary);

  std::vector<std::unique_ptr<nn::Linear>> projections;
  nn::Linear out;

 private:
  Config config_;
};

// By token: the first half of the frequencies by one axis, the others by the other. `rotary` is of
// half a head's features.
ops::RotaryTable axial_table(const nn::Rotary& rotary, const std::vector<int64_t>& first,
                             const std::vector<int64_t>& second, const at::TensorOptions& like);

// A forest of roots of so many tokens, in each of which all see one another.
std::shared_ptr<const Forest> all_open(const std::vector<int64_t>& counts);

}  // namespace temper::models
