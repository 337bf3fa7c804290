// What the tests of kernels share.
#pragma once

#include <doctest/doctest.h>
#include <hwy/targets.h>
#include <omp.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "temper/ops/native/kernels/simd.h"

namespace temper::kernels {

// Calls body() under every SIMD target of this build that the machine has, with one thread and with
// two. The bits must be the same each time.
template <class Body>
void for_each_target(Body body) {
  const int threads = omp_get_max_threads();
  std::set<std::string> seen;
  const int64_t detected = hwy::SupportedTargets();
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if (!((detected | HWY_EMU128) & target)) continue;
    hwy::SetSupportedTargetsForTest(target | HWY_EMU128);
    const std::string name = simd_name();
    if (!seen.insert(name).second) continue;
    for (const int count : {1, 2}) {
      omp_set_num_threads(count);
      CAPTURE(name);
      CAPTURE(count);
      body();
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  omp_set_num_threads(threads);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

class Draws {
 public:
  explicit Draws(uint32_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint32_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  // Uniform in +-range.
  std::vector<float> floats(int64_t count, float range = 1) {
    std::vector<float> x(static_cast<size_t>(count));
    for (float& value : x) value = range * (2 * static_cast<float>(engine_()) / 4294967296.0f - 1);
    return x;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace temper::kernels
