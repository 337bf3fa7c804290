#include "temper/ops/aten/integer_products.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "temper/ops/aten/dequantized.h"
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
  const at::Tensor divisor = scale.masked_fill(scale.eq(0).bitwise_or_(finite.bitwise_not()), 1);
  const at::Tensor whole = x.div(divisor).round_().clamp_(-127, 127);
  const at::Tensor none = finite.bitwise_not().bitwise_or_(scale.eq(0));
  return {whole.masked_fill_(none, 0),
          scale.masked_fill(finite.bitwise_not(), std::numeric_limits<double>::quiet_NaN())};
}

// The integers of rows [first, first + count), in float32.
at::Tensor integers(const QuantizedWeight& w, int64_t first, int64_t count) {
  const FormatRow& row = row_of(w.format);
  const at::Tensor codes = codes_of_rows(w, first, count);
  if (row.kind == CodeKind::kInt8) return codes.view(at::kChar).to(at::kFloat);
  if (row.kind == CodeKind::kLinear) return codes.to(at::kFloat).add_(row.first);
  const CodeIntegers of = integers_of(w.format);
  const std::vector<float> table(of.table.begin(), of.table.end());
  return at::tensor(table, at::kFloat)
      .to(w.codes.device())
      .index_select(0, codes.view({-1}).to(at::kInt))
      .view_as(codes);
}

}  // namespace

// Sums of products of a block are integers below 2^24, which float32 holds: exact in any order.
void multiply_integers(const at::Tensor& x, const QuantizedWeight& w, int64_t rows, at::Tensor& y) {
  const int64_t group = scale_group(w.width, w.block);
  const double unit = static_cast<double>(integers_of(w.format).unit);
  const OffsetKind kind = w.offsets.defined() ? row_of(w.format).offset : OffsetKind::kNone;
  y.zero_();
  for (int64_t first = 0; first < w.rows; first += std::max<int64_t>(rows, 1)) {
    const int64_t count = std::min(std::max<int64_t>(rows, 1), w.rows - first);
    const at::Tensor matrix = integers(w, first, count).t(),
                     scales = numbers_of_rows(w, false, group, first, count);
    at::Tensor offsets;
    if (kind != OffsetKind::kNone) offsets = numbers_of_rows(w, true, group, first, count);
    at::Tensor part = y.narrow(1, first, count);
    for (int64_t i = 0; i < w.width;) {
      const int64_t g = i / group, depth = std::min(kRoundingBlock, (g + 1) * group - i);
      const RoundedBlock block = rounded_block(x.narrow(1, i, depth));
      at::Tensor sums = at::mm(block.values, matrix.narrow(0, i, depth));
      at::Tensor of_x, offset;
      if (offsets.defined()) {
        of_x = block.values.sum(1, /*keepdim=*/true);
        offset = offsets.select(0, g).unsqueeze(0);
      }
      if (kind == OffsetKind::kZero) sums.sub_(of_x.mul(offset));
      part.add_(sums.mul_(block.scale.mul(unit).mul(scales.select(0, g).unsqueeze(0))));
      if (kind == OffsetKind::kMinimum) part.sub_(of_x.mul(block.scale.mul(offset)));
      i += depth;
    }
  }
}

}  // namespace temper::ops::aten_impl
