#include "temper/models/mxfp4.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "temper/models/expert_tensors.h"

namespace temper::models {
namespace {

// Of E2M1: a sign, two bits of exponent, one of mantissa.
constexpr float kValues[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

uint16_t bfloat16_bits(float exact) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16);
}

// The sixteen values at every scale.
std::array<std::array<uint16_t, 16>, 256> value_table() {
  std::array<std::array<uint16_t, 16>, 256> table;
  for (size_t scale = 0; scale < 256; ++scale)
    for (size_t code = 0; code < 16; ++code) {
      const float value = scale == 255 ? std::numeric_limits<float>::quiet_NaN()
                                       : std::ldexp(kValues[code], static_cast<int>(scale) - 127);
      table[scale][code] = bfloat16_bits(value);
    }
  return table;
}

TensorView decoded(const TensorView& blocks, const TensorView& scales,
                   const std::vector<int64_t>& shape) {
  static const auto table = value_table();
  const TensorView codes = made_view(blocks), exponents = made_view(scales);
  const size_t bytes = codes.num_bytes, of_block = static_cast<size_t>(kMxfp4Block / 2);
  const auto memory = std::make_shared<std::vector<uint16_t>>(2 * bytes);
  uint16_t* to = memory->data();
  for (size_t i = 0; i < bytes; ++i) {
    const auto& values = table[std::to_integer<size_t>(exponents.data[i / of_block])];
    const auto both = std::to_integer<size_t>(codes.data[i]);
    *to++ = values[both & 15];
    *to++ = values[both >> 4];
  }
  give_back_pages(codes);
  return {.dtype = DType::kBFloat16,
          .shape = shape,
          .data = std::as_bytes(std::span(*memory)).data(),
          .num_bytes = 4 * bytes,
          .owner = memory};
}

}  // namespace

TensorView mxfp4_values(const TensorView& blocks, const TensorView& scales) {
  TensorView out;
  out.dtype = DType::kBFloat16;
  out.shape = {blocks.shape[0], blocks.shape[1] * kMxfp4Block};
  out.num_bytes = 4 * blocks.num_bytes;
  out.make = [blocks, scales, shape = out.shape] { return decoded(blocks, scales, shape); };
  return out;
}

}  // namespace temper::models
