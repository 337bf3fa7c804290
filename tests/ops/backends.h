// What tests share that lay the aten backend's numbers over those of the native one.
#pragma once

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "temper/ops/backend.h"
#include "tests/ops/kernels.h"

namespace temper::ops::backends {

constexpr Arithmetic kArithmetics[] = {Arithmetic::kExact, Arithmetic::kFast, Arithmetic::kAmx,
                                       Arithmetic::kInteger};

inline at::Tensor random(at::IntArrayRef shape, uint32_t seed, at::ScalarType type,
                         double range = 1) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  const std::vector<float> values = kernels::Draws(seed).floats(count);
  return at::tensor(values, at::kDouble).mul_(range).view(shape).to(type);
}

inline at::Tensor random_ids(at::IntArrayRef shape, uint32_t seed, int64_t below) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  kernels::Draws draws(seed);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(draws.below(below));
  return at::tensor(ids, at::kLong).view(shape);
}

// The largest difference, relative to the largest number that is expected, or to `least` where that
// is larger: for numbers that are 0 but for rounding.
inline double error(const at::Tensor& found, const at::Tensor& expected, double least = 0) {
  REQUIRE(found.sizes() == expected.sizes());
  REQUIRE((found.scalar_type() == expected.scalar_type()));
  if (found.numel() == 0) return 0;
  const double largest = std::max(expected.abs().max().item<double>(), least);
  return (found - expected).abs().max().item<double>() / (largest > 0 ? largest : 1);
}

inline double tolerance(at::ScalarType type) { return type == at::kDouble ? 1e-12 : 1e-5; }

inline void check_close(const at::Tensor& found, const at::Tensor& expected,
                        const std::string& what, double least = 0) {
  CAPTURE(what);
  CHECK(error(found, expected, least) < tolerance(expected.scalar_type()));
}

// Calls body(type) for the two types that operations compute in.
template <class Body>
void each_type(Body body) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    CAPTURE(type);
    body(type);
  }
}

// Calls body(backend) with the native and the aten backend, and lays the tensors that it gives over
// each other.
template <class Body>
void compare(const std::string& what, Body body, double least = 0) {
  const std::vector<at::Tensor> expected = body(native_backend()), found = body(aten_backend());
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    check_close(found[i], expected[i], what + " " + std::to_string(i), least);
}

using Tensors = std::vector<at::Tensor>;

}  // namespace temper::ops::backends
