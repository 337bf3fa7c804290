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

#include "temper/ops/code_values.h"

namespace temper::ops {

enum class WeightFormat {
  kFloat32,   // or float64, for gradient checks
  kBFloat16,  // frozen (no gradient), as are the quantized formats
  // Quantized: codes with scales; FormatRow says what they stand for.
  kInt8,
  kNf4,
  kMxFp4,
  // Of files alone: matrices that are held in them can be kept so, and no name chooses them.
  kFp4,  // of bitsandbytes
  // GGUF's, by its names.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kInt4Group,  // GPTQ, AWQ, compressed-tensors
  kInt8Group,
  kFp8,  // E4M3
  // Trained float32 weights that matrix products round to bfloat16; the gradient passes straight
  // through to the float32 value. Must be the last: it follows from model.dtype, cannot be chosen
  // as a storage format, and shares the name of kBFloat16.
  kRoundedBFloat16,
};

// FormatRow::block of formats with one scale per row of the matrix, and of those of which each
// matrix has blocks of its own size.
inline constexpr int64_t kRowBlock = -1, kOwnBlock = -2;

// What a code stands for, before its scale.
enum class CodeKind {
  kTable,   // FormatRow::values[code], of four bits
  kLinear,  // code + FormatRow::first, of 2, 3, 5 or 6 bits
  kInt8,    // the byte in two's complement
  kE4m3,    // the byte as a float: a sign, four bits of exponent, three of mantissa; no infinity
};
// How scales and, where a matrix has them, offsets make weights of values. All in float32, each
// operation rounded.
enum class OffsetKind {
  kNone,     // value * scale
  kZero,     // (value - offset) * scale, of integers: the difference is exact
  kMinimum,  // value * scale - offset
};

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
  // How many values of the row-major matrix share a scale, or kRowBlock or kOwnBlock; 0: not
  // quantized.
  int64_t block = 0;
  CodeKind kind = CodeKind::kInt8;
  const float* values = nullptr;  // kTable: of the 16 codes
  int first = 0;                  // kLinear: the value of code 0
  OffsetKind offset = OffsetKind::kNone;
  // 16: scales and offsets are stored as float16 where that is exact.
  int scale_bits = 32;
  // Nested: scales and offsets are integers (a byte each) times one number for so many values of a
  // row, rounded to float32. 0: they are numbers themselves.
  int64_t super_block = 0;
  // Weights are never converted to this format: matrices that the weight files hold in it are kept
  // in it, and all others follow model.dtype.
  bool of_files = false;
  // Only experts are stored in it.
  bool of_experts = false;
  // The weights that choosing this format applies to, for help texts.
  const char* covers = "all";
};

// Rows of GGUF's formats, whose scales are float16. Of four bits, by a table:
constexpr FormatRow gguf_row(WeightFormat format, const char* name, int64_t block,
                             const std::array<float, 16>& values,
                             OffsetKind offset = OffsetKind::kNone, int64_t super_block = 0) {
  return {.format = format,
          .name = name,
          .title = name,
          .bits = 4,
          .reading_bits = 32,
          .block = block,
          .kind = CodeKind::kTable,
          .values = values.data(),
          .offset = offset,
          .scale_bits = 16,
          .super_block = super_block,
          .of_files = true};
}
// and of consecutive integers from `first` on:
constexpr FormatRow gguf_row(WeightFormat format, const char* name, int bits, int64_t block,
                             int first, OffsetKind offset = OffsetKind::kNone,
                             int64_t super_block = 0) {
  return {.format = format,
          .name = name,
          .title = name,
          .bits = bits,
          .reading_bits = 32,
          .block = block,
          .kind = CodeKind::kLinear,
          .first = first,
          .offset = offset,
          .scale_bits = 16,
          .super_block = super_block,
          .of_files = true};
}

// One row per format, in the order of WeightFormat.
inline constexpr std::array<FormatRow, 21> kWeightFormats{{
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
     .kind = CodeKind::kTable,
     .values = kNf4Values.data(),
     .covers = "the blocks' linear layers"},
    // Scale: a power of two (OCP Microscaling Formats 1.0, section 5.3).
    {.format = WeightFormat::kMxFp4,
     .name = "mxfp4",
     .title = "MXFP4",
     .bits = 4,
     .reading_bits = 32,
     .block = 32,
     .kind = CodeKind::kTable,
     .values = kE2m1Values.data(),
     .of_files = true,
     .of_experts = true,
     .covers = "experts that the files hold in it"},
    // Scale: the block's largest magnitude.
    {.format = WeightFormat::kFp4,
     .name = "fp4",
     .title = "FP4",
     .bits = 4,
     .reading_bits = 32,
     .block = 64,
     .kind = CodeKind::kTable,
     .values = kFp4Values.data(),
     .of_files = true},
    gguf_row(WeightFormat::kQ4_0, "Q4_0", 32, kIntegersFrom<-8>),
    gguf_row(WeightFormat::kQ4_1, "Q4_1", 32, kIntegersFrom<0>, OffsetKind::kMinimum),
    gguf_row(WeightFormat::kQ5_0, "Q5_0", 5, 32, -16),
    gguf_row(WeightFormat::kQ5_1, "Q5_1", 5, 32, 0, OffsetKind::kMinimum),
    {.format = WeightFormat::kQ8_0,
     .name = "Q8_0",
     .bits = 8,
     .reading_bits = 8,
     .block = 32,
     .scale_bits = 16,
     .of_files = true},
    gguf_row(WeightFormat::kQ2K, "Q2_K", 2, 16, 0, OffsetKind::kMinimum, 256),
    gguf_row(WeightFormat::kQ3K, "Q3_K", 3, 16, -4, OffsetKind::kNone, 256),
    gguf_row(WeightFormat::kQ4K, "Q4_K", 32, kIntegersFrom<0>, OffsetKind::kMinimum, 256),
    gguf_row(WeightFormat::kQ5K, "Q5_K", 5, 32, 0, OffsetKind::kMinimum, 256),
    gguf_row(WeightFormat::kQ6K, "Q6_K", 6, 16, -32, OffsetKind::kNone, 256),
    gguf_row(WeightFormat::kIq4Nl, "IQ4_NL", 32, kIq4NlValues),
    {.format = WeightFormat::kInt4Group,
     .name = "int4_group",
     .title = "4-bit integers in groups",
     .bits = 4,
     .reading_bits = 32,
     .block = kOwnBlock,
     .kind = CodeKind::kTable,
     .values = kIntegersFrom<0>.data(),
     .offset = OffsetKind::kZero,
     .scale_bits = 16,
     .of_files = true},
    {.format = WeightFormat::kInt8Group,
     .name = "int8_group",
     .title = "8-bit integers in groups",
     .bits = 8,
     .reading_bits = 8,
     .block = kOwnBlock,
     .offset = OffsetKind::kZero,
     .scale_bits = 16,
     .of_files = true},
    {.format = WeightFormat::kFp8,
     .name = "fp8",
     .title = "FP8",
     .bits = 8,
     .reading_bits = 16,
     .block = kOwnBlock,
     .kind = CodeKind::kE4m3,
     .of_files = true},
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

// The names of the formats that can be chosen, in the order of WeightFormat, where they stand
// first.
inline constexpr auto kStorageNames = [] {
  std::array<const char*, static_cast<size_t>(WeightFormat::kMxFp4) + 1> names{};
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

// Where a matrix has blocks of its own size, which only its file knows, the usual one.
inline constexpr int64_t kUsualBlock = 128;
// How many values of the row-major matrix share a scale, of rows of `width` values.
constexpr int64_t block_size(WeightFormat format, int64_t width) {
  const int64_t block = row_of(format).block;
  if (block == kRowBlock) return width > 0 ? width : 1;
  return block == kOwnBlock ? kUsualBlock : block;
}
// The number of blocks, and so of scales, of a matrix.
constexpr int64_t block_count(WeightFormat format, int64_t rows, int64_t width) {
  const int64_t block = block_size(format, width);
  return (rows * width + block - 1) / block;
}
// How many consecutive values along a row of `width` values are sure to share a scale, in every
// row. Blocks are counted over the row-major matrix and may cross row ends: the block size where it
// divides the width, else their greatest common divisor.
constexpr int64_t scale_group(int64_t width, int64_t block) { return std::gcd(width, block); }
constexpr int64_t scale_group(WeightFormat format, int64_t width) {
  return scale_group(width, block_size(format, width));
}
// Bytes per value of a matrix with rows of `width` values, scales and offsets included.
constexpr double bytes_of(WeightFormat format, int64_t width) {
  const FormatRow& row = row_of(format);
  const double codes = row.bits / 8.0;
  if (!is_quantized(format)) return codes;
  const double numbers = row.offset == OffsetKind::kNone ? 1 : 2, bytes = row.scale_bits / 8.0,
               group = static_cast<double>(scale_group(format, width));
  return codes + numbers * (row.super_block > 0
                                ? 1 / group + bytes / static_cast<double>(row.super_block)
                                : bytes / group);
}

// How products with a matrix in bfloat16 compute. kFast and kAmx round the other factor to bfloat16
// too, in the backward pass as well, which is what processors have instructions for; elsewhere the
// same numbers are computed in float32. Sums are float32 in one order: kFast's is kExact's, kAmx's
// is that of Intel AMX (kernels::Rounding::kBlocks). kAmx also rounds what quantized matrices hold.
// kInteger is for quantized matrices: x Wᵀ is computed in integers, with activations rounded to 8
// bits (native/kernels/integer/integer_gemm.h); all other products are kExact's.
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
