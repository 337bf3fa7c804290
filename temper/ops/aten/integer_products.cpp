#include "temper/ops/aten/integer_products.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "temper/ops/integers.h"

namespace temper::ops::aten_impl {
namespace {

// A block of every row: whole numbers, and a scale for each row [N, 1].
struct RoundedBlock {
  at::Tensor values, scale;
};

RoundedBlock rounded_block(const at::Tensor& x) {
  const at::Tensor largest = x.abs().amax(1, /*keepdim=*/true), finite = largest.isfinite();
  // Not by a number: devices may multiply by its reciprocal instead.
  const at::Tensor scale = largest.div(at::full_like(largest, 127));
  const at::Tensor divisor = scale.masked_fill(scale.eq(0).logical_or_(finite.logical_not()), 1);
  const at::Tensor whole = x.div(divisor).round_().clamp_(-127, 127);
  const at::Tensor none = finite.logical_not().logical_or_(scale.eq(0));
  return {whole.masked_fill_(none, 0),
          scale.masked_fill(finite.logical_not(), std::numeric_limits<double>::quiet_NaN())};
}

// The integers of rows [first, first + count), in float32.
at::Tensor integers(const QuantizedWeight& w, int64_t first, int64_t count) {
  if (row_of(w.format).bits == 8) return w.codes.narrow(0, first, count).to(at::kFloat);
  const int64_t begin = first * w.width, values = count * w.width;
  const at::Tensor bytes = w.codes.narrow(0, begin / 2, (begin + values + 1) / 2 - begin / 2),
                   codes = at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, 1)
                               .view({-1});
  const CodeIntegers of = integers_of(w.format);
  const std::vector<float> table(of.table.begin(), of.table.end());
  return at::tensor(table, at::kFloat)
      .to(w.codes.device())
      .index_select(0, codes.narrow(0, begin % 2, values).to(at::kInt))
      .view({count, w.width});
}

// The scales of rows [first, first + count) over each group's values, [groups, count].
at::Tensor group_scales(const QuantizedWeight& w, int64_t first, int64_t count, int64_t group) {
  const int64_t block = row_of(w.format).block, groups = w.width / group;
  if (block == kRowBlock) return w.scales.narrow(0, first, count).unsqueeze(0);
  const auto numbers = at::TensorOptions(at::kLong).device(w.scales.device());
  const at::Tensor row = at::arange(first, first + count, numbers).mul_(w.width),
                   column = at::arange(groups, numbers).mul_(group).unsqueeze_(1);
  const at::Tensor place = at::floor_divide(row.add(column), block);
  return w.scales.index_select(0, place.view({-1})).view({groups, count});
}

}  // namespace

// Sums of products of a block are integers below 2^24, which float32 holds: exact in any order.
void multiply_integers(const at::Tensor& x, const QuantizedWeight& w, int64_t rows, at::Tensor& y) {
  const int64_t group = scale_group(w.format, w.width);
  const double unit = static_cast<double>(integers_of(w.format).unit);
  y.zero_();
  for (int64_t first = 0; first < w.rows; first += std::max<int64_t>(rows, 1)) {
    const int64_t count = std::min(std::max<int64_t>(rows, 1), w.rows - first);
    const at::Tensor matrix = integers(w, first, count).t(),
                     scales = group_scales(w, first, count, group);
    at::Tensor part = y.narrow(1, first, count);
    for (int64_t i = 0; i < w.width;) {
      const int64_t g = i / group, depth = std::min(kRoundingBlock, (g + 1) * group - i);
      const RoundedBlock block = rounded_block(x.narrow(1, i, depth));
      const at::Tensor sums = at::mm(block.values, matrix.narrow(0, i, depth));
      part.add_(sums.mul_(block.scale.mul(unit).mul(scales.select(0, g).unsqueeze(0))));
      i += depth;
    }
  }
}

}  // namespace temper::ops::aten_impl
