#include "temper/models/files/mxfp4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "temper/base/error.h"
#include "temper/models/files/expert_tensors.h"

namespace temper::models {
namespace {

constexpr auto kFormat = ops::WeightFormat::kMxFp4;
constexpr int64_t kBlock = ops::row_of(kFormat).block;
constexpr size_t kBlockBytes = kBlock / 2;
constexpr int kScaleBias = 127, kNoScale = 255;

float scale_of(std::byte exponent) {
  const int e = std::to_integer<int>(exponent);
  return e == kNoScale ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, e - kScaleBias);
}

uint16_t bfloat16_bits(float exact) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16);
}

// The sixteen values at every scale.
std::array<std::array<uint16_t, 16>, 256> value_table() {
  std::array<std::array<uint16_t, 16>, 256> table;
  for (size_t scale = 0; scale < 256; ++scale)
    for (size_t code = 0; code < 16; ++code)
      table[scale][code] =
          bfloat16_bits(ops::kE2m1Values[code] * scale_of(static_cast<std::byte>(scale)));
  return table;
}

// What makes the values: a view that has it is one of MXFP4.
struct Mxfp4Values {
  TensorView blocks, scales;
  std::vector<int64_t> shape;
  TensorView operator()() const;
};

TensorView Mxfp4Values::operator()() const {
  static const auto table = value_table();
  const TensorView codes = made_view(blocks), exponents = made_view(scales);
  const auto memory = std::make_shared<std::vector<uint16_t>>(2 * codes.num_bytes);
  uint16_t* to = memory->data();
  for (size_t i = 0; i < codes.num_bytes; ++i) {
    const auto& values = table[std::to_integer<size_t>(exponents.data[i / kBlockBytes])];
    const auto both = std::to_integer<size_t>(codes.data[i]);
    *to++ = values[both & 15];
    *to++ = values[both >> 4];
  }
  give_back_pages(codes);
  return {.dtype = DType::kBFloat16,
          .shape = shape,
          .data = std::as_bytes(std::span(*memory)).data(),
          .num_bytes = 4 * codes.num_bytes,
          .owner = memory};
}

// Of 32 codes, one a byte.
void check_mxfp4_block(std::span<const uint8_t> codes, float scale, size_t block, int64_t width) {
  const bool finite = std::all_of(codes.begin(), codes.end(), [&](uint8_t code) {
    return std::isfinite(ops::kE2m1Values[code] * scale);
  });
  check<DataError>(finite, "the values of row ", static_cast<int64_t>(block) * kBlock / width,
                   " are not all finite: the scale of a block is ", scale);
}

}  // namespace

TensorView mxfp4_values(const TensorView& blocks, const TensorView& scales) {
  TensorView out;
  out.dtype = DType::kBFloat16;
  out.shape = {blocks.shape[0], blocks.shape[1] * kBlock};
  out.num_bytes = 4 * blocks.num_bytes;
  out.make = Mxfp4Values{blocks, scales, out.shape};
  return out;
}

bool is_mxfp4(const TensorView& view) { return view.make.target<Mxfp4Values>() != nullptr; }

bool hold_mxfp4(const TensorMap& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const auto& entry) { return is_mxfp4(entry.second); });
}

std::shared_ptr<const ops::QuantizedWeight> mxfp4_weight(const TensorView& view,
                                                         at::Device device) {
  const Mxfp4Values* from = view.make.target<Mxfp4Values>();
  check(from != nullptr, "a tensor is not in MXFP4");
  const TensorView codes = made_view(from->blocks), exponents = made_view(from->scales);
  std::vector<uint8_t> row_major(2 * codes.num_bytes);
#pragma omp parallel for schedule(static) if (codes.num_bytes > 32768)
  for (size_t i = 0; i < codes.num_bytes; ++i) {
    const auto both = std::to_integer<uint8_t>(codes.data[i]);
    row_major[2 * i] = both & 15;
    row_major[2 * i + 1] = both >> 4;
  }
  std::vector<float> scale(exponents.num_bytes);
  // The largest scale of which no value is beyond float32's.
  constexpr float kSafe = 0x1p125f;
  for (size_t i = 0; i < scale.size(); ++i) {
    scale[i] = scale_of(exponents.data[i]);
    if (!(scale[i] <= kSafe))
      check_mxfp4_block(std::span(row_major).subspan(2 * kBlockBytes * i, 2 * kBlockBytes),
                        scale[i], i, from->shape[1]);
  }
  give_back_pages(codes);
  return ops::from_codes(kFormat, from->shape[0], from->shape[1], row_major.data(), scale.data(),
                         device);
}

}  // namespace temper::models
