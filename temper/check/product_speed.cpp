#include "temper/check/product_speed.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/ops/backend.h"
#include "temper/ops/weight.h"

namespace temper::checks {
namespace {

constexpr int64_t kMeasuredSide = 2048, kManyRows = 64;

// Each alternately, as other programs may begin or end meanwhile.
double quotient(const ops::Backend& backend, ops::Weight w, int64_t rows, int times) {
  const at::Tensor x = at::ones({rows, kMeasuredSide});
  at::Tensor y = at::empty({rows, kMeasuredSide});
  double best[2] = {1e300, 1e300};
  for (int i = 0; i < 2 * times; ++i) {
    w.arithmetic = i % 2 ? ops::Arithmetic::kInteger : ops::Arithmetic::kExact;
    const double start = steady_seconds();
    backend.multiply(x, w, y, {});
    best[i % 2] = std::min(best[i % 2], steady_seconds() - start);
  }
  return best[0] / best[1];
}

}  // namespace

ProductSpeed integer_speed(ops::WeightFormat format) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<size_t>(kMeasuredSide * kMeasuredSide);
  const auto blocks = static_cast<size_t>(ops::block_count(format, kMeasuredSide, kMeasuredSide));
  const int64_t super_block = ops::row_of(format).super_block;
  ops::Codes codes{.format = format,
                   .rows = kMeasuredSide,
                   .width = kMeasuredSide,
                   .group = ops::block_size(format, kMeasuredSide),
                   .codes = std::vector<uint8_t>(count, 3),
                   .scales = std::vector<float>(blocks, 1)};
  if (super_block > 0) {
    codes.scales.resize(count / static_cast<size_t>(super_block));
    codes.sub_scales.assign(blocks, 1);
  }
  const ops::Backend& backend = ops::native_backend();
  const ops::Weight w(backend.from_codes(codes, at::Device(at::kCPU)));
  return {quotient(backend, w, 1, 40), quotient(backend, w, kManyRows, 16)};
}

std::string integer_speeds() {
  std::string text;
  for (const ops::FormatRow& row : ops::kWeightFormats)
    if (ops::rounds_weights(row.format))
      text += str(text.empty() ? "" : "; ", row.name, " ", text_of(integer_speed(row.format)));
  return text;
}

std::string text_of(const ProductSpeed& speed) {
  char text[96];
  std::snprintf(text, sizeof text, "%.1f times as fast for one row, %.1f for %lld", speed.one_row,
                speed.many_rows, static_cast<long long>(kManyRows));
  return text;
}

}  // namespace temper::checks
