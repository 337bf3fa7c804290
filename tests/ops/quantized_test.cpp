#include "temper/ops/native/kernels/quantized.h"

#include <cmath>

#include "temper/ops/backend.h"
#include "temper/ops/native/weight_views.h"
#include "tests/ops/block_sums.h"
#include "tests/ops/codes.h"
#include "tests/ops/kernels.h"

using namespace temper::kernels;
using temper::ops::Codes;
using temper::ops::FormatRow;
using temper::ops::quantized_formats;

namespace {

// A matrix quantized row-major, and packed for whichever target is on.
struct Quantized {
  int64_t rows, width;
  Codes codes;
  std::shared_ptr<const temper::ops::QuantizedWeight> weight;

  // Of formats to which nothing is quantized any codes and scales.
  Quantized(WeightFormat format, int64_t r, int64_t w, const std::vector<float>& values)
      : rows(r), width(w) {
    if (row_of(format).of_files) {
      codes = random_codes(format, rows, width, static_cast<uint32_t>(31 + values.size()));
      if (!codes.scales.empty() && codes.offsets.empty() && row_of(format).bits == 4)
        codes.scales[0] = std::ldexp(1.0f, -127);  // the smallest one
      // A number that float16 does not have, with which a code's product is rounded.
      if (row_of(format).offset == temper::ops::OffsetKind::kMinimum && rows % 2 == 0)
        codes.scales[0] = 0.1f;
      return;
    }
    codes = {.format = format, .rows = rows, .width = width};
    codes.codes.resize(values.size());
    codes.scales.resize(static_cast<size_t>(block_count(format, rows, width)));
    if (format == WeightFormat::kNf4) {
      quantize_nf4(values.data(), rows * width, codes.codes.data(), codes.scales.data());
      quantize_absmax(codes.scales.data(), static_cast<int64_t>(codes.scales.size()));
    } else {
      quantize_int8(values.data(), rows, width, codes.codes.data(), codes.scales.data());
    }
  }
  // What the definition says.
  std::vector<float> values() const { return defined_values(codes); }
  QuantizedMatrix packed() {
    weight = temper::ops::native_backend().from_codes(codes, at::kCPU);
    return matrix_of(*weight);
  }
};

}  // namespace

TEST_CASE("products with codes have the bits of products with their values") {
  Draws draws(7);
  for (const WeightFormat code : quantized_formats()) {
    const bool fewer = row_of(code).of_files && !row_of(code).of_experts;
    for (const int64_t any : fewer ? std::vector<int64_t>{33, 320}
                                   : std::vector<int64_t>{1, 2, 33, 64, 72, 96, 128, 320, 700}) {
      const int64_t width = allowed_width(code, any);
      for (const int64_t m : fewer ? std::vector<int64_t>{1, 3, 30, 100}
                                   : std::vector<int64_t>{1, 2, 3, 4, 5, 30, 100, 230}) {
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
    for (const int64_t any : {33, 72, 128, 700})
      for (const int64_t m : {1, 4, 30, 270}) {
        if (any == 700 && m > 4 && row_of(code).of_files && !row_of(code).of_experts) continue;
        const int64_t rows = draws.between(1, 150), width = allowed_width(code, any);
        Quantized w(code, rows, width, draws.floats(rows * width));
        for (float& scale : w.codes.scales) scale = without_denormal(scale);
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
  for (const WeightFormat code : quantized_formats()) {
    const int64_t m = 90, rows = 200, width = allowed_width(code, 128);
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

TEST_CASE("FP8's values are E4M3's") {
  for (int code = 0; code < 256; ++code)
    if ((code & 127) != 127)
      CHECK(static_cast<double>(e4m3_values()[code]) == temper::ops::e4m3(code));
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
