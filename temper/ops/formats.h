// The table of storage formats for weight matrices, one row per format, how products with them
// compute, and the dtypes of the key-value cache. Plain C++ without LibTorch, because the kernels
// include it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>

namespace temper::ops {

enum class WeightFormat {
  kFloat32,   // or float64, for gradient checks
  kBFloat16,  // frozen (no gradient), as are the quantized formats
  // Quantized: codes with scales, W[r, i] = value of code * scale, rounded once to float32.
  kInt8,
  kNf4,
  kMxFp4,
  // Trained float32 weights that matrix products round to bfloat16; the gradient passes straight
  // through to the float32 value. Must be the last: it follows from model.dtype, cannot be chosen
  // as a storage format, and shares the name of kBFloat16.
  kRoundedBFloat16,
};

// FormatRow::block of formats with one scale per row of the matrix.
inline constexpr int64_t kRowBlock = -1;

struct FormatRow {
  WeightFormat format;
  const char* name;          // in model.storage, --storage and the metadata of adapters
  const char* title = name;  // in messages
  // In memory, per value, without its scale.
  int bits;
  // The cost of reading a value in a matrix product, as the bits of an unpacked value that takes
  // the same time: unpacking four bits takes as long as reading a float32.
  int reading_bits;
  // The values are stored as float32 and can be trained.
  bool trains = false;
  // How many values of the row-major matrix share a float32 scale, or kRowBlock; 0: not quantized.
  int64_t block = 0;
  // Values of the 16 4-bit codes, by code; null: 8-bit codes, each of which is its own value.
  const float* values = nullptr;
  // Weights are never converted to this format: matrices that the weight files hold in it are kept
  // in it, and all others follow model.dtype.
  bool of_files = false;
  // Only experts are stored in it.
  bool of_experts = false;
  // The weights that choosing this format applies to, for help texts.
  const char* covers = "all";
};

// NormalFloat4, ascending from -1 to 1 (Dettmers et al., arXiv 2305.14314, appendix E).
inline constexpr std::array<float, 16> kNf4Values{
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
// E2M1: a sign, two bits of exponent, one of mantissa (OCP Microscaling Formats 1.0,
// section 5.3.3).
inline constexpr std::array<float, 16> kE2m1Values{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                   4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                   -2.0f, -3.0f, -4.0f, -6.0f};

// One row per format, in the order of WeightFormat.
inline constexpr std::array<FormatRow, 6> kWeightFormats{{
    {.format = WeightFormat::kFloat32,
     .name = "float32",
     .bits = 32,
     .reading_bits = 32,
     .trains = true},
    {.format = WeightFormat::kBFloat16, .name = "bfloat16", .bits = 16, .reading_bits = 16},
    // -127 to 127; scale: the row's largest magnitude / 127.
    {.format = WeightFormat::kInt8,
     .name = "int8",
     .bits = 8,
     .reading_bits = 8,
     .block = kRowBlock,
     .covers = "the blocks' linear layers"},
    // Scale: the block's largest magnitude, quantized in turn ("double quantization").
    {.format = WeightFormat::kNf4,
     .name = "nf4",
     .title = "NF4",
     .bits = 4,
     .reading_bits = 32,
     .block = 64,
     .values = kNf4Values.data(),
     .covers = "the blocks' linear layers"},
    // Scale: a power of two (OCP Microscaling Formats 1.0, section 5.3).
    {.format = WeightFormat::kMxFp4,
     .name = "mxfp4",
     .title = "MXFP4",
     .bits = 4,
     .reading_bits = 32,
     .block = 32,
     .values = kE2m1Values.data(),
     .of_files = true,
     .of_experts = true,
     .covers = "experts that the files hold in it"},
    {.format = WeightFormat::kRoundedBFloat16,
     .name = "bfloat16",
     .bits = 32,
     .reading_bits = 32,
     .trains = true},
}};

constexpr const FormatRow& row_of(WeightFormat format) {
  return kWeightFormats[static_cast<size_t>(format)];
}

static_assert([] {
  for (size_t i = 0; i < kWeightFormats.size(); ++i)
    if (kWeightFormats[i].format != static_cast<WeightFormat>(i)) return false;
  return true;
}());

// The names of the formats that can be chosen (all but the last), in the order of WeightFormat.
inline constexpr auto kStorageNames = [] {
  std::array<const char*, kWeightFormats.size() - 1> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = kWeightFormats[i].name;
  return names;
}();

// nullopt where no format that can be chosen has that name.
constexpr std::optional<WeightFormat> format_named(std::string_view name) {
  for (size_t i = 0; i < kStorageNames.size(); ++i)
    if (name == kStorageNames[i]) return kWeightFormats[i].format;
  return {};
}

constexpr bool is_quantized(WeightFormat format) { return row_of(format).block != 0; }
// Whether storing weights in this format changes their values: quantized from arbitrary numbers,
// not taken from the files as it is.
constexpr bool rounds_weights(WeightFormat format) {
  return is_quantized(format) && !row_of(format).of_files;
}

// How many consecutive values along a row of `width` values are sure to share a scale, in every
// row. Blocks are counted over the row-major matrix and may cross row ends: the block size where it
// divides the width, else their greatest common divisor.
constexpr int64_t scale_group(WeightFormat format, int64_t width) {
  const int64_t block = row_of(format).block;
  return block == kRowBlock ? width : std::gcd(width, block);
}
// The number of blocks, and so of scales, of a matrix.
constexpr int64_t block_count(WeightFormat format, int64_t rows, int64_t width) {
  const int64_t block = row_of(format).block;
  return block == kRowBlock ? rows : (rows * width + block - 1) / block;
}
// Bytes per value of a matrix with rows of `width` values, scales included.
constexpr double bytes_of(WeightFormat format, int64_t width) {
  return row_of(format).bits / 8.0 +
         (is_quantized(format) ? 4.0 / static_cast<double>(scale_group(format, width)) : 0);
}

// How products with a matrix in bfloat16 compute. kFast and kAmx round the other factor to bfloat16
// too, in the backward pass as well, which is what processors have instructions for; elsewhere the
// same numbers are computed in float32. Sums are float32 in one order: kFast's is kExact's, kAmx's
// is that of Intel AMX (kernels::Rounding::kBlocks). kAmx also rounds what quantized matrices hold.
// kInteger is of quantized matrices alone: x Wᵀ is computed of activations rounded to 8 bits, in
// integers (native/kernels/integer/integer_gemm.h); all other products are kExact's.
enum class Arithmetic { kExact, kFast, kAmx, kInteger };
// In model.arithmetic and --arithmetic, in the order of Arithmetic.
inline constexpr std::array kArithmeticNames{"exact", "fast", "amx", "integer"};
constexpr std::optional<Arithmetic> arithmetic_named(std::string_view name) {
  for (size_t i = 0; i < kArithmeticNames.size(); ++i)
    if (name == kArithmeticNames[i]) return static_cast<Arithmetic>(i);
  return {};
}

// Dtypes of the key-value cache.
enum class CacheDtype { kFloat32, kFloat16, kBFloat16 };
constexpr int64_t bytes_of(CacheDtype dtype) { return dtype == CacheDtype::kFloat32 ? 4 : 2; }

}  // namespace temper::ops
