#include "temper/ops/native/kernels/quantized.h"

#include <cmath>

#include "tests/ops/block_sums.h"
#include "tests/ops/kernels.h"

using namespace temper::kernels;
using temper::ops::FormatRow;

namespace {

std::vector<WeightFormat> quantized_formats() {
  std::vector<WeightFormat> formats;
  for (const FormatRow& row : temper::ops::kWeightFormats)
    if (row.block != 0) formats.push_back(row.format);
  return formats;
}

// A matrix quantized row-major, and packed for whichever target is on.
struct Quantized {
  WeightFormat code;
  int64_t rows, width;
  std::vector<uint8_t> row_major, codes;
  std::vector<float> scale, scales;

  // Of formats to which nothing is quantized any codes and scales.
  Quantized(WeightFormat kind, int64_t r, int64_t w, const std::vector<float>& values)
      : code(kind), rows(r), width(w), row_major(values.size()) {
    if (row_of(code).of_files) {
      Draws draws(static_cast<uint32_t>(31 + values.size()));
      for (uint8_t& one : row_major) one = static_cast<uint8_t>(draws.below(16));
      for (int64_t i = 0; i < block_count(code, rows, width); ++i)
        scale.push_back(std::ldexp(1.0f, static_cast<int>(draws.between(-9, 3))));
      scale[0] = std::ldexp(1.0f, -127);  // the smallest one
    } else if (code == WeightFormat::kNf4) {
      scale.resize((values.size() + 63) / 64);
      quantize_nf4(values.data(), rows * width, row_major.data(), scale.data());
      quantize_absmax(scale.data(), static_cast<int64_t>(scale.size()));
    } else {
      scale.resize(static_cast<size_t>(rows));
      quantize_int8(values.data(), rows, width, row_major.data(), scale.data());
    }
  }
  // What the definition says.
  std::vector<float> values() const {
    const FormatRow& row = row_of(code);
    std::vector<float> out(row_major.size());
    for (size_t i = 0; i < out.size(); ++i)
      out[i] =
          (row.values ? row.values[row_major[i]]
                      : static_cast<float>(static_cast<int8_t>(row_major[i]))) *
          scale[i / static_cast<size_t>(row.block == temper::ops::kRowBlock ? width : row.block)];
    return out;
  }
  QuantizedMatrix packed() {
    codes.resize(static_cast<size_t>(code_bytes(code, rows, width)));
    scales.resize(static_cast<size_t>(scale_count(code, rows, width)));
    pack_codes(code, rows, width, row_major.data(), scale.data(), codes.data(), scales.data());
    return {code, rows, width, scale_group(code, width), codes.data(), scales.data()};
  }
};

}  // namespace

TEST_CASE("products with codes have the bits of products with their values") {
  Draws draws(7);
  const int64_t widths[]{1, 2, 33, 64, 72, 96, 128, 320, 700};
  for (const WeightFormat code : quantized_formats()) {
    for (const int64_t width : widths) {
      for (const int64_t m : {1, 2, 3, 4, 5, 30, 100, 230}) {
        const int64_t rows = draws.between(1, 150);
        Quantized w(code, rows, width, draws.floats(rows * width));
        const std::vector<float> values = w.values();
        const std::vector<float> a = draws.floats(m * width), b = draws.floats(m * rows),
                                 bias = draws.floats(rows), before = draws.floats(m * width);
        std::vector<float> forward(static_cast<size_t>(m * rows)), backward = before;
        reference_gemm<float>(m, rows, width, {a.data(), width, 1}, {values.data(), 1, width},
                              forward.data(), rows, false, bias.data());
        reference_gemm<float>(m, width, rows, {b.data(), rows, 1}, {values.data(), width, 1},
                              backward.data(), width, true, nullptr);
        CAPTURE(rows);
        CAPTURE(width);
        CAPTURE(m);
        for_each_target([&] {
          const QuantizedMatrix packed = w.packed();
          std::vector<float> read(values.size());
          dequantize(packed, read.data());
          REQUIRE(same_bits(read, values));
          std::vector<float> c(forward.size()), d = before;
          gemm(m, {a.data(), width, 1}, packed, c.data(), rows, {.bias = bias.data()});
          REQUIRE(same_bits(c, forward));
          gemm_transposed(m, {b.data(), rows, 1}, packed, d.data(), width, {.accumulate = true});
          REQUIRE(same_bits(d, backward));
        });
      }
    }
  }
}

TEST_CASE("sums in blocks with codes are those with their values rounded") {
  Draws draws(9);
  for (const WeightFormat code : quantized_formats())
    for (const int64_t width : {33, 72, 128, 700})
      for (const int64_t m : {1, 4, 30, 270}) {
        const int64_t rows = draws.between(1, 150);
        Quantized w(code, rows, width, draws.floats(rows * width));
        for (float& scale : w.scale) scale = without_denormal(scale);
        const std::vector<float> values = w.values(), a = draws.floats(m * width),
                                 b = draws.floats(m * rows), bias = draws.floats(rows),
                                 before = draws.floats(m * width);
        const std::vector<float> forward =
            block_sums(m, rows, width, {a.data(), width, 1}, {values.data(), 1, width},
                       std::vector<float>(static_cast<size_t>(m * rows)), false, bias.data());
        const std::vector<float> backward = block_sums(m, width, rows, {b.data(), rows, 1},
                                                       {values.data(), width, 1}, before, true);
        CAPTURE(rows);
        CAPTURE(width);
        CAPTURE(m);
        for_each_target([&] {
          const QuantizedMatrix packed = w.packed();
          std::vector<float> c(forward.size()), d = before;
          gemm(m, {a.data(), width, 1}, packed, c.data(), rows,
               {.bias = bias.data(), .rounding = Rounding::kBlocks});
          REQUIRE(same_bits(c, forward));
          gemm_transposed(m, {b.data(), rows, 1}, packed, d.data(), width,
                          {.accumulate = true, .rounding = Rounding::kBlocks});
          REQUIRE(same_bits(d, backward));
        });
      }
}

TEST_CASE("a left side whose rows lie apart is multiplied by codes, too") {
  Draws draws(8);
  const int64_t m = 90, rows = 200, width = 128;
  for (const WeightFormat code : quantized_formats()) {
    Quantized w(code, rows, width, draws.floats(rows * width));
    const std::vector<float> values = w.values(), a = draws.floats(m * width);
    std::vector<float> defined(static_cast<size_t>(m * rows));
    reference_gemm<float>(m, rows, width, {a.data(), 1, m}, {values.data(), 1, width},
                          defined.data(), rows, false, nullptr);
    for_each_target([&] {
      std::vector<float> c(defined.size());
      gemm(m, {a.data(), 1, m}, w.packed(), c.data(), rows);
      CHECK(same_bits(c, defined));
    });
  }
}

TEST_CASE("MXFP4's values are E2M1's: a sign, two bits of exponent, one of mantissa") {
  for (int code = 0; code < 16; ++code) {
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const float magnitude = exponent == 0
                                ? 0.5f * static_cast<float>(mantissa)
                                : std::ldexp(1 + 0.5f * static_cast<float>(mantissa), exponent - 1);
    const float value = temper::ops::kE2m1Values[code];
    CHECK(std::abs(value) == magnitude);
    CHECK(std::signbit(value) == (code >= 8));
  }
}

TEST_CASE("nf4 takes the nearest of its values, and its scales are block maxima") {
  std::vector<float> values(130);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i) - 0.7f;
  std::vector<uint8_t> code(values.size());
  std::vector<float> absmax(3);
  quantize_nf4(values.data(), 130, code.data(), absmax.data());
  CHECK(absmax[0] == 0.7f);
  CHECK(absmax[2] == values[129]);
  for (size_t i = 0; i < values.size(); ++i) {
    const float scaled = values[i] / absmax[i / 64];
    for (int other = 0; other < 16; ++other)
      CHECK(std::abs(temper::ops::kNf4Values[code[i]] - scaled) <=
            std::abs(temper::ops::kNf4Values[other] - scaled) + 1e-6f);
  }
}

TEST_CASE("blocks of zeros stay zero") {
  const std::vector<float> values(256, 0.0f);
  for (const WeightFormat code : {WeightFormat::kNf4, WeightFormat::kInt8}) {
    Quantized w(code, 4, 64, values);
    for (const float x : w.values()) CHECK(x == 0.0f);
  }
}

TEST_CASE("the dynamic map has the published values") {
  const float* map = dynamic_map_values();
  CHECK(map[0] == doctest::Approx(-0.9929687));
  CHECK(map[255] == 1.0f);
  for (int i = 0; i < 255; ++i) CHECK(map[i] < map[i + 1]);
}
