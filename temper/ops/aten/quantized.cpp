// Quantized weights: codes row-major in planes of 4, 2 and 1 bits, and 8; numbers of blocks as
// Codes has them.
#include "temper/ops/native/kernels/quantized.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"
#include "temper/ops/aten/dequantized.h"

namespace temper::ops {
namespace aten_impl {
namespace {

// The bits of each plane, the lowest ones of a code first.
std::vector<int64_t> plane_bits(int bits) {
  std::vector<int64_t> planes;
  for (const int part : {8, 4, 2, 1})
    if (bits & part) planes.push_back(part);
  return planes;
}
int64_t bytes_of_plane(int64_t count, int64_t bits) { return (count * bits + 7) / 8; }

at::Tensor uploaded(const void* data, int64_t count, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(data), {count}, at::TensorOptions(type));
}

// The first of the numbers of a byte stands in its highest bits.
at::Tensor shifts(int64_t bits, at::Device device) {
  return at::arange(8 / bits, at::TensorOptions(device).dtype(at::kLong))
      .mul_(-bits)
      .add_(8 - bits)
      .to(at::kByte);
}

// Codes, one a byte, of which a plane takes `bits` from bit `from` on.
at::Tensor packed_plane(const at::Tensor& codes, int64_t from, int64_t bits) {
  at::Tensor x = codes.bitwise_right_shift(from).bitwise_and((1 << bits) - 1);
  if (const int64_t left = x.numel() * bits % 8) x = at::constant_pad_nd(x, {0, (8 - left) / bits});
  x = x.view({-1, 8 / bits});
  at::Tensor bytes = x.select(1, 0).bitwise_left_shift(8 - bits);
  for (int64_t i = 1; i < 8 / bits; ++i)
    bytes = bytes.bitwise_or(x.select(1, i).bitwise_left_shift(8 - bits * (i + 1)));
  return bytes;
}

// Codes [first, first + count) of the row-major matrix, one a byte.
at::Tensor unpacked(const QuantizedWeight& w, int64_t all, int64_t first, int64_t count) {
  int64_t plane = 0, from = 0;
  at::Tensor codes;
  for (const int64_t bits : plane_bits(row_of(w.format).bits)) {
    const int64_t per = 8 / bits, begin = first / per, end = (first + count + per - 1) / per;
    at::Tensor x = w.codes.narrow(0, plane + begin, end - begin);
    if (bits < 8)
      x = x.unsqueeze(1)
              .bitwise_right_shift(shifts(bits, x.device()))
              .bitwise_and((1 << bits) - 1)
              .view({-1})
              .narrow(0, first - begin * per, count);
    codes = codes.defined() ? codes.bitwise_or(x.bitwise_left_shift(from)) : x;
    plane += bytes_of_plane(all, bits);
    from += bits;
  }
  return codes;
}

// The values of a format's codes on a device, uploaded once for each.
at::Tensor code_table(WeightFormat format, at::Device device) {
  static std::mutex mutex;
  // Never freed: a device may be gone when the program ends.
  static auto* tables = new std::map<std::pair<WeightFormat, std::string>, at::Tensor>();
  const FormatRow& row = row_of(format);
  const std::lock_guard lock(mutex);
  at::Tensor& table = (*tables)[{format, device.str()}];
  if (!table.defined()) {
    const at::ArrayRef<float> values = row.kind == CodeKind::kE4m3
                                           ? at::ArrayRef<float>(kernels::e4m3_values(), 256)
                                           : at::ArrayRef<float>(row.values, 16);
    table = at::tensor(values, at::kFloat).to(device);
  }
  return table;
}

at::Tensor code_values(WeightFormat format, const at::Tensor& codes) {
  const FormatRow& row = row_of(format);
  if (row.kind == CodeKind::kInt8) return codes.view(at::kChar).to(at::kFloat);
  if (row.kind == CodeKind::kLinear) return codes.to(at::kFloat).add_(row.first);
  return code_table(format, codes.device()).index_select(0, codes.to(at::kInt));
}

// The numbers of blocks [first, first + count).
at::Tensor block_numbers(const QuantizedWeight& w, const at::Tensor& numbers,
                         const at::Tensor& nested, int64_t first, int64_t count) {
  if (!nested.defined()) return numbers.narrow(0, first, count).to(at::kFloat);
  const int64_t per = row_of(w.format).super_block / w.block, begin = first / per,
                end = (first + count + per - 1) / per;
  const at::Tensor super = numbers.narrow(0, begin, end - begin).to(at::kFloat);
  return super.unsqueeze(1)
      .expand({end - begin, per})
      .reshape({-1})
      .narrow(0, first - begin * per, count)
      .mul(nested.narrow(0, first, count));
}

// A number of each block for x, which is in blocks of `size` from the first on, the last of which
// may lack values: views that broadcast together.
struct Blocks {
  at::Tensor x, numbers;
};
Blocks in_blocks(const at::Tensor& x, int64_t size, const at::Tensor& numbers) {
  const int64_t blocks = numbers.numel();
  if (x.numel() == blocks * size) return {x.view({blocks, size}), numbers.unsqueeze(1)};
  return {x, numbers.unsqueeze(1).expand({blocks, size}).reshape({-1}).narrow(0, 0, x.numel())};
}

// Values [first, first + count) of the row-major matrix. Whole blocks of the same scale are read.
at::Tensor quantized_values(const QuantizedWeight& w, int64_t first, int64_t count) {
  const int64_t all = w.codes.numel() * 8 / row_of(w.format).bits, size = w.block,
                block = first / size, begin = block * size,
                end = std::min(begin + (first - begin + count + size - 1) / size * size, all),
                blocks = (end - begin + size - 1) / size;
  at::Tensor x = code_values(w.format, unpacked(w, all, begin, end - begin));
  const OffsetKind kind = w.offsets.defined() ? row_of(w.format).offset : OffsetKind::kNone;
  const auto with = [&](const at::Tensor& numbers, const at::Tensor& nested, auto change) {
    const Blocks of = in_blocks(x, size, block_numbers(w, numbers, nested, block, blocks));
    change(of.x, of.numbers);
  };
  const auto subtract = [](const at::Tensor& a, const at::Tensor& b) { a.sub_(b); };
  if (kind == OffsetKind::kZero) with(w.offsets, w.nested_offsets, subtract);
  with(w.scales, w.nested_scales, [](const at::Tensor& a, const at::Tensor& b) { a.mul_(b); });
  if (kind == OffsetKind::kMinimum) with(w.offsets, w.nested_offsets, subtract);
  return x.narrow(0, first - begin, count);
}

// The numbers that belong to values of the row-major matrix, by index.
at::Tensor number_of(const QuantizedWeight& w, const at::Tensor& numbers, const at::Tensor& nested,
                     const at::Tensor& index) {
  const at::Tensor block = index.floor_divide(w.block);
  if (!nested.defined()) return numbers.index_select(0, block).to(at::kFloat);
  return numbers.index_select(0, index.floor_divide(row_of(w.format).super_block))
      .to(at::kFloat)
      .mul(nested.index_select(0, block));
}

// Values of the row-major matrix by index, one by one.
at::Tensor values_at(const QuantizedWeight& w, const at::Tensor& index) {
  const FormatRow& row = row_of(w.format);
  const int64_t all = w.codes.numel() * 8 / row.bits;
  int64_t plane = 0, from = 0;
  at::Tensor codes;
  for (const int64_t bits : plane_bits(row.bits)) {
    const int64_t per = 8 / bits;
    const at::Tensor shift = index.remainder(per).add_(1).mul_(-bits).add_(8).to(at::kByte);
    const at::Tensor part = w.codes.index_select(0, index.floor_divide(per).add_(plane))
                                .bitwise_right_shift(shift)
                                .bitwise_and((1 << bits) - 1)
                                .bitwise_left_shift(from);
    codes = codes.defined() ? codes.bitwise_or(part) : part;
    plane += bytes_of_plane(all, bits);
    from += bits;
  }
  at::Tensor x = code_values(w.format, codes);
  const OffsetKind kind = w.offsets.defined() ? row.offset : OffsetKind::kNone;
  if (kind == OffsetKind::kZero) x.sub_(number_of(w, w.offsets, w.nested_offsets, index));
  x.mul_(number_of(w, w.scales, w.nested_scales, index));
  if (kind == OffsetKind::kMinimum) x.sub_(number_of(w, w.offsets, w.nested_offsets, index));
  return x;
}

at::Tensor on(const at::Tensor& x, at::Device device) {
  // The host's arrays are the caller's: a copy, on the host as well.
  return x.to(x.options().device(device), /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor numbers_on(const Codes& of, const std::vector<float>& numbers, at::Device device) {
  if (numbers.empty()) return {};
  const at::Tensor exact =
      uploaded(numbers.data(), static_cast<int64_t>(numbers.size()), at::kFloat);
  if (row_of(of.format).scale_bits == 16)
    if (const at::Tensor half = exact.to(at::kHalf); half.to(at::kFloat).equal(exact))
      return on(half, device);
  return on(exact, device);
}
template <class T>
at::Tensor nested_on(const std::vector<T>& numbers, at::Device device) {
  if (numbers.empty()) return {};
  return on(uploaded(numbers.data(), static_cast<int64_t>(numbers.size()), at::kChar), device);
}

}  // namespace

at::Tensor dequantized(const QuantizedWeight& w, int64_t first, int64_t count) {
  check(w.layout == QuantizedWeight::Layout::kRows,
        "the aten backend reads codes that it laid out itself");
  return quantized_values(w, (w.first_row + first) * w.width, count * w.width)
      .view({count, w.width});
}

at::Tensor codes_of_rows(const QuantizedWeight& w, int64_t first, int64_t count) {
  const int64_t all = w.codes.numel() * 8 / row_of(w.format).bits;
  return unpacked(w, all, (w.first_row + first) * w.width, count * w.width).view({count, w.width});
}

at::Tensor numbers_of_rows(const QuantizedWeight& w, bool offsets, int64_t group, int64_t first,
                           int64_t count) {
  const auto numbers = at::TensorOptions(at::kLong).device(w.scales.device());
  const int64_t begin = w.first_row + first, groups = w.width / group;
  const at::Tensor row = at::arange(begin, begin + count, numbers).mul_(w.width),
                   column = at::arange(groups, numbers).mul_(group).unsqueeze_(1);
  const at::Tensor of = offsets
                            ? number_of(w, w.offsets, w.nested_offsets, row.add(column).view({-1}))
                            : number_of(w, w.scales, w.nested_scales, row.add(column).view({-1}));
  return of.view({groups, count});
}

at::Tensor dequantized_rows(const QuantizedWeight& w, const at::Tensor& rows) {
  check(w.layout == QuantizedWeight::Layout::kRows,
        "the aten backend reads codes that it laid out itself");
  const int64_t n = rows.numel(), width = std::max<int64_t>(w.width, 1),
                at_once = std::max<int64_t>(scratch_numbers(rows.device()) / width, 1);
  at::Tensor out = at::empty({n, w.width}, rows.options().dtype(at::kFloat));
  const at::Tensor columns = at::arange(w.width, rows.options());
  for (int64_t first = 0; first < n; first += at_once) {
    const int64_t count = std::min(at_once, n - first);
    const at::Tensor begin = rows.narrow(0, first, count).add(w.first_row).mul_(w.width);
    out.narrow(0, first, count)
        .copy_(values_at(w, begin.unsqueeze(1).add(columns).view({-1})).view({count, w.width}));
  }
  return out;
}

}  // namespace aten_impl

std::shared_ptr<const QuantizedWeight> AtenBackend::from_codes(const Codes& codes,
                                                               at::Device device) const {
  using namespace aten_impl;
  const at::Tensor row_major =
      uploaded(codes.codes.data(), static_cast<int64_t>(codes.codes.size()), at::kByte);
  std::vector<at::Tensor> planes;
  int64_t from = 0;
  for (const int64_t bits : plane_bits(row_of(codes.format).bits)) {
    planes.push_back(bits == 8 ? row_major : packed_plane(row_major, from, bits));
    from += bits;
  }
  auto w = std::make_shared<QuantizedWeight>();
  w->format = codes.format;
  w->rows = codes.rows;
  w->width = codes.width;
  w->block = codes.group > 0 ? codes.group : block_size(codes.format, codes.width);
  w->layout = QuantizedWeight::Layout::kRows;
  w->codes = on(planes.size() == 1 ? planes[0] : at::cat(planes), device);
  w->scales = numbers_on(codes, codes.scales, device);
  w->offsets = numbers_on(codes, codes.offsets, device);
  w->nested_scales = nested_on(codes.sub_scales, device);
  w->nested_offsets = nested_on(codes.sub_offsets, device);
  w->order = order_of(codes, device);
  return w;
}

}  // namespace temper::ops
