// Experts in MXFP4 (OCP Microscaling Formats, version 1.0, sections 5.2 and 5.3): 32 numbers of
// four bits share a scale that is a power of two. Of a layer's experts there are
// "PREFIX.experts.LAYER_blocks" [experts, rows, blocks of a row, 16] uint8, two numbers a byte, the
// low bits first, and "..._scales" [experts, rows, blocks of a row] uint8, 2^(scale - 127), 255: no
// number.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "temper/base/error.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/models/sparse_mlp.h"

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

class Mxfp4Matrix final : public CodedMatrix {
 public:
  // blocks [rows, blocks of a row, 16], scales [rows, blocks of a row]; place: of the tensor, as
  // errors name it.
  Mxfp4Matrix(TensorView blocks, TensorView scales, std::string place)
      : blocks_(std::move(blocks)), scales_(std::move(scales)), place_(std::move(place)) {}

  std::vector<int64_t> shape() const { return {blocks_.shape[0], blocks_.shape[1] * kBlock}; }

  ops::WeightFormat format() const override { return kFormat; }

  // Scales are kept in float32.
  ops::Codes unpacked() const override {
    const TensorView codes = made_view(blocks_), exponents = made_view(scales_);
    ops::Codes to{.format = kFormat, .rows = shape()[0], .width = shape()[1], .group = kBlock};
    to.codes.resize(2 * codes.num_bytes);
#pragma omp parallel for schedule(static) if (codes.num_bytes > 32768)
    for (size_t i = 0; i < codes.num_bytes; ++i) {
      const auto both = std::to_integer<uint8_t>(codes.data[i]);
      to.codes[2 * i] = both & 15;
      to.codes[2 * i + 1] = both >> 4;
    }
    to.scales.resize(exponents.num_bytes);
    // The largest scale of which no value is beyond float32's.
    constexpr float kSafe = 0x1p125f;
    for (size_t i = 0; i < to.scales.size(); ++i) {
      const float scale = to.scales[i] = scale_of(exponents.data[i]);
      if (!(scale <= kSafe))
        check_block(std::span(to.codes).subspan(2 * kBlockBytes * i, 2 * kBlockBytes), scale, i);
    }
    give_back_pages(codes);
    return to;
  }

  // In bfloat16, which holds every value exactly.
  TensorView values() const override {
    static const auto table = value_table();
    const TensorView codes = made_view(blocks_), exponents = made_view(scales_);
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
            .shape = shape(),
            .data = std::as_bytes(std::span(*memory)).data(),
            .num_bytes = 4 * codes.num_bytes,
            .owner = memory};
  }

 private:
  // Of 32 codes, one a byte.
  void check_block(std::span<const uint8_t> codes, float scale, size_t block) const {
    const bool finite = std::all_of(codes.begin(), codes.end(), [&](uint8_t code) {
      return std::isfinite(ops::kE2m1Values[code] * scale);
    });
    check<DataError>(finite, place_, ": the values of row ",
                     static_cast<int64_t>(block) * kBlock / shape()[1],
                     " are not all finite: the scale of a block is ", scale);
  }

  TensorView blocks_, scales_;
  std::string place_;
};

// Each expert's weight [out, in].
void open_mxfp4(TensorMap& tensors, const HfConfig&, const std::string& directory) {
  const std::string blocks_end = "_blocks", scales_end = "_scales";
  std::vector<std::string> names;
  for (const auto& [name, view] : tensors)
    if (name.ends_with(blocks_end)) names.push_back(name);
  for (const std::string& name : names) {
    const std::string stem = name.substr(0, name.size() - blocks_end.size());
    const TensorView blocks = tensors.at(name);
    const auto found = tensors.find(stem + scales_end);
    const std::vector<int64_t>& shape = blocks.shape;
    const bool fits = found != tensors.end() && shape.size() == 4 && shape[0] >= 1 &&
                      shape[0] <= kMostExperts && shape[3] == kBlock / 2 &&
                      blocks.dtype == DType::kUInt8 && found->second.dtype == DType::kUInt8 &&
                      found->second.shape == std::vector<int64_t>(shape.begin(), shape.end() - 1);
    if (!fits) continue;
    const TensorView scales = found->second;
    tensors.erase(found);
    tensors.erase(name);
    const size_t at = stem.rfind('.') + 1, count = static_cast<size_t>(shape[0]);
    for (size_t i = 0; i < count; ++i) {
      const std::string of = str(stem.substr(0, at), i, ".", stem.substr(at), ".weight");
      const auto matrix = std::make_shared<const Mxfp4Matrix>(
          view_entry(blocks, i, count, {shape.begin() + 1, shape.end()}),
          view_entry(scales, i, count, {shape[1], shape[2]}), str(directory, ": `", of, "`"));
      tensors[of] = coded_view(DType::kBFloat16, matrix->shape(), matrix);
    }
  }
}

const Registered<CheckpointFormat> kMxfp4(
    &checkpoint_formats, {"mxfp4", {.open = &open_mxfp4, .of_families = true}, "MXFP4 experts"});

}  // namespace
}  // namespace temper::models
