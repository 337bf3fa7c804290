#include "temper/distill/maps/maps.h"

#include <ATen/ATen.h>

#include <cmath>

namespace temper::distill {

void Maps::add(int64_t in, int64_t out) {
  const size_t pair = pairs_.size();
  pairs_.emplace(in, out, false, 1 / std::sqrt(static_cast<double>(in)));
  nn::Parameter& weight = pairs_[pair].weight;
  weight.set_device(device_);
  weight.set_value(
      models::initial_value(weight, "pairs." + std::to_string(pair) + ".weight", seed_));
  weight.set_trainable(true);
}

}  // namespace temper::distill
