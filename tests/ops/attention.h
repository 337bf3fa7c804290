// What tests of the kernels of attention share.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "temper/ops/native/kernels/targets.h"
// clang-format off
#include <hwy/highway.h>
#include "temper/ops/native/kernels/elementary-inl.h"
// clang-format on

#include "temper/ops/forest.h"
#include "temper/ops/native/kernels/attention/forest_attention.h"

namespace temper::kernels {

struct FloatMath {
  static float exp(float x) { return HWY_NAMESPACE::exp_of(x); }
  static float tanh(float x) { return HWY_NAMESPACE::tanh_of(x); }
};

inline ForestView view(const Forest& f) {
  return {f.num_tokens(),
          f.num_segments(),
          f.segment_start.data(),
          f.parent.data(),
          f.subtree_end.data(),
          f.open.empty() ? nullptr : reinterpret_cast<const OpenPositions*>(f.open.data())};
}

inline QueryRange all_queries(const Forest& f) { return {0, f.num_tokens()}; }

inline double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

}  // namespace temper::kernels
