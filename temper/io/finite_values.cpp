#include "temper/io/finite_values.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace temper {
namespace {

// Bits: an unsigned integer of the value's size; `exponent`: the bits that are all set only in NaN
// and infinity. Each block is summed in one loop that the compiler vectorizes; which value it is
// matters only in the rare block that has one.
template <class Bits>
std::optional<size_t> find_full_exponent(const std::byte* data, size_t count, Bits exponent) {
  constexpr size_t kBlock = 4096;
  Bits values[kBlock];
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t size = std::min(kBlock, count - first);
    std::memcpy(values, data + first * sizeof(Bits), size * sizeof(Bits));
    int found = 0;
#pragma omp simd reduction(| : found)
    for (size_t i = 0; i < size; ++i) found |= (values[i] & exponent) == exponent;
    for (size_t i = 0; found && i < size; ++i)
      if ((values[i] & exponent) == exponent) return first + i;
  }
  return {};
}

std::optional<size_t> find_in_part(DType dtype, const std::byte* data, size_t count) {
  switch (dtype) {
    case DType::kFloat64:
      return find_full_exponent<uint64_t>(data, count, 0x7FF0000000000000);
    case DType::kFloat32:
      return find_full_exponent<uint32_t>(data, count, 0x7F800000);
    case DType::kFloat16:
      return find_full_exponent<uint16_t>(data, count, 0x7C00);
    case DType::kBFloat16:
      return find_full_exponent<uint16_t>(data, count, 0x7F80);
    case DType::kFloat8E4M3:  // whose largest exponent has one NaN, of all other bits, too
      return find_full_exponent<uint8_t>(data, count, 0x7F);
    default:
      return {};
  }
}

}  // namespace

std::optional<size_t> find_not_finite(const TensorView& view) {
  constexpr size_t kPart = size_t{64} << 20;
  const size_t size = dtype_size(view.dtype);
  for (size_t begin = 0; begin < view.num_bytes; begin += kPart) {
    TensorView part = view;
    part.data = view.data + begin;
    part.num_bytes = std::min(kPart, view.num_bytes - begin);
    const auto found = find_in_part(view.dtype, part.data, part.num_bytes / size);
    give_back_pages(part);
    if (found) return begin / size + *found;
  }
  return {};
}

}  // namespace temper
