// How far results of operations are from what is expected.
#pragma once

#include <ATen/ATen.h>

namespace temper {

inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace temper
