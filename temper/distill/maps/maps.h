// Learned linear maps, one a pair of layers, that train with the student.
#pragma once

#include <ATen/ATen.h>

#include <cmath>

#include "temper/models/init.h"
#include "temper/nn/linear.h"

namespace temper::distill {

// Parameters `pairs.I.weight` [out, in], drawn from a normal of deviation 1 / sqrt(in), so that
// mapped vectors keep their size.
class Maps : public nn::Module {
 public:
  Maps(uint64_t seed, at::Device device) : pairs_(*this, "pairs"), seed_(seed), device_(device) {}
  void add(int64_t in, int64_t out) {
    const size_t pair = pairs_.size();
    pairs_.emplace(in, out, false, 1 / std::sqrt(static_cast<double>(in)));
    nn::Parameter& weight = pairs_[pair].weight;
    weight.set_device(device_);
    weight.set_value(
        models::initial_value(weight, "pairs." + std::to_string(pair) + ".weight", seed_));
    weight.set_trainable(true);
  }
  at::Tensor weight(size_t pair) const { return pairs_[pair].weight.value(); }
  at::Tensor apply(size_t pair, const at::Tensor& x) { return pairs_[pair].forward(x, {}); }

 private:
  nn::ModuleList<nn::Linear> pairs_;
  uint64_t seed_;
  at::Device device_;
};

}  // namespace temper::distill
