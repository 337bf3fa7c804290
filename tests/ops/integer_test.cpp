// Products in integers (temper/ops/native/kernels/integer/integer_gemm.h) against their definition
// in whole numbers and doubles, in which each float32 operation is rounded once: 53 bits are more
// than twice 24 and two.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "temper/ops/layers/linear.h"
#include "temper/ops/native/kernels/integer/integer_gemm.h"
#include "temper/ops/native/native.h"
#include "temper/ops/native/weight_views.h"
#include "temper/ops/weight.h"
#include "tests/ops/backends.h"
#include "tests/ops/codes.h"

using namespace temper::kernels;
using temper::ops::Arithmetic;
using temper::ops::CodeIntegers;
using temper::ops::CodeKind;
using temper::ops::Codes;
using temper::ops::integers_of;
using temper::ops::OffsetKind;
using temper::ops::random_codes;

namespace {

float once(double x) { return static_cast<float>(x); }
double wide(float x) { return static_cast<double>(x); }

struct IntegerProduct {
  Codes codes;
  int64_t m, rows, width, group;
  std::vector<float> x, bias;

  size_t block_of(int64_t row, int64_t i) const {
    const int64_t value = row * width + i, block = row_of(codes.format).block;
    if (codes.group > 0) return static_cast<size_t>(value / codes.group);
    return static_cast<size_t>(block == temper::ops::kRowBlock ? row : value / block);
  }
  int64_t integer_at(int64_t row, int64_t i) const {
    const uint8_t code = codes.codes[static_cast<size_t>(row * width + i)];
    const temper::ops::FormatRow& format = row_of(codes.format);
    if (format.kind == CodeKind::kInt8) return static_cast<int8_t>(code);
    if (format.kind == CodeKind::kLinear) return code + format.first;
    return integers_of(codes.format).table[code];
  }
  // The number of value i of a row.
  template <class Nested>
  float number(const std::vector<float>& numbers, const std::vector<Nested>& nested, int64_t row,
               int64_t i) const {
    if (nested.empty()) return numbers[block_of(row, i)];
    const int64_t super = (row * width + i) / row_of(codes.format).super_block;
    return once(wide(numbers[static_cast<size_t>(super)]) *
                static_cast<double>(nested[block_of(row, i)]));
  }

  static IntegerProduct draw(Draws& draws, WeightFormat format, int64_t m, int64_t rows,
                             int64_t any_width, bool offsets) {
    const int64_t width = temper::ops::allowed_width(format, any_width);
    IntegerProduct p{
        random_codes(format, rows, width, static_cast<uint32_t>(draws.below(1 << 20)), 32, offsets),
        m,
        rows,
        width,
        0,
        {},
        {}};
    p.group = p.codes.group > 0 ? p.codes.group : temper::ops::scale_group(format, width);
    p.x = draws.floats(m * width, 3);
    p.bias = draws.floats(rows);
    // A block of zeros, of denormal numbers, and one number above all others.
    for (int64_t i = 0; i < std::min<int64_t>(width, 64); ++i) p.x[static_cast<size_t>(i)] = 0;
    if (m > 1)
      for (int64_t i = 0; i < width; ++i)
        p.x[static_cast<size_t>(width + i)] =
            std::ldexp(static_cast<float>(draws.below(190)), -149);
    if (m > 2) p.x[static_cast<size_t>(2 * width + width / 2)] = 1e30f;
    return p;
  }

  std::vector<float> defined(bool biased) const {
    std::vector<float> y(static_cast<size_t>(m * rows));
    const float unit = integers_of(codes.format).unit;
    for (int64_t n = 0; n < m; ++n)
      for (int64_t begin = 0, end; begin < width; begin = end) {
        end = std::min(begin + 64, (begin / group + 1) * group);
        const float* block = x.data() + n * width;
        float largest = 0;
        bool finite = true;
        for (int64_t i = begin; i < end; ++i) {
          finite = finite && std::isfinite(block[i]);
          largest = std::max(largest, std::abs(block[i]));
        }
        const float s =
            finite ? once(wide(largest) / 127) : std::numeric_limits<float>::quiet_NaN();
        std::vector<int64_t> q(static_cast<size_t>(end - begin));
        int64_t of_q = 0;
        for (int64_t i = begin; i < end && finite && s > 0; ++i) {
          const double near = std::nearbyint(wide(once(wide(block[i]) / wide(s))));
          of_q += q[static_cast<size_t>(i - begin)] =
              static_cast<int64_t>(std::min(std::max(near, -127.0), 127.0));
        }
        const OffsetKind kind =
            codes.offsets.empty() ? OffsetKind::kNone : row_of(codes.format).offset;
        for (int64_t r = 0; r < rows; ++r) {
          const float scale = number(codes.scales, codes.sub_scales, r, begin);
          int64_t sum = 0;
          for (int64_t i = begin; i < end; ++i)
            sum += q[static_cast<size_t>(i - begin)] * integer_at(r, i);
          const float offset =
              kind == OffsetKind::kNone ? 0 : number(codes.offsets, codes.sub_offsets, r, begin);
          if (kind == OffsetKind::kZero) sum -= of_q * static_cast<int64_t>(offset);
          const float factor = once(wide(once(wide(s) * wide(unit))) * wide(scale));
          float& to = y[static_cast<size_t>(n * rows + r)];
          to = once(wide(to) + wide(once(static_cast<double>(sum) * wide(factor))));
          if (kind == OffsetKind::kMinimum) {
            const float minimum = once(wide(s) * wide(offset));
            to = once(wide(to) - wide(once(static_cast<double>(of_q) * wide(minimum))));
          }
        }
      }
    for (size_t i = 0; biased && i < y.size(); ++i)
      y[i] = once(wide(y[i]) + wide(bias[i % static_cast<size_t>(rows)]));
    return y;
  }

  std::vector<float> computed(bool biased, IntegerChoice choice) const {
    const auto weight = temper::ops::native_backend().from_codes(codes, at::kCPU);
    const QuantizedMatrix w = temper::ops::matrix_of(*weight);
    std::vector<float> y(static_cast<size_t>(m * rows));
    const MatrixView<float> a{x.data(), width, 1};
    const float* added = biased ? bias.data() : nullptr;
    if (choice == IntegerChoice::kBest)
      integer_gemm(m, a, w, y.data(), rows, added);
    else
      multiply_integers(round_rows(m, a, width, group), 0, m, w, y.data(), rows, added, choice);
    return y;
  }
};

std::vector<WeightFormat> formats_of_integers() {
  std::vector<WeightFormat> formats;
  for (const temper::ops::FormatRow& row : temper::ops::kWeightFormats)
    if (temper::ops::has_integers(row.format)) formats.push_back(row.format);
  return formats;
}

}  // namespace

TEST_CASE("products in integers are those of their definition, by whatever instructions") {
  Draws draws(41);
  for (const WeightFormat format : formats_of_integers())
    for (const int64_t width : {1, 2, 33, 64, 72, 96, 128, 320, 700})
      for (const int64_t m : {1, 2, 3, 4, 5, 13, 30, 130})
        for (const bool offsets : {true, false}) {
          if (m > 5 && width != 320) continue;
          if (!offsets && row_of(format).offset == OffsetKind::kNone) continue;
          const IntegerProduct p =
              IntegerProduct::draw(draws, format, m, draws.between(1, 90), width, offsets);
          const bool biased = m % 2 == 1;
          const std::vector<float> defined = p.defined(biased);
          CAPTURE(row_of(format).name);
          CAPTURE(width);
          CAPTURE(m);
          for_each_target([&] {
            for (const IntegerChoice choice :
                 {IntegerChoice::kBest, IntegerChoice::kPlain, IntegerChoice::kScalar})
              REQUIRE(same_bits(p.computed(biased, choice), defined));
          });
        }
}

TEST_CASE("the largest sums of products in integers do not saturate") {
  Draws draws(42);
  for (const WeightFormat format : formats_of_integers())
    for (const int sign : {1, -1}) {
      IntegerProduct p = IntegerProduct::draw(draws, format, 7, 33, 256, true);
      // int8's -128 and 127, and the largest values of tables.
      const int bits = row_of(format).bits, most = (1 << bits) - 1;
      for (uint8_t& code : p.codes.codes)
        code = static_cast<uint8_t>(bits == 8 ? (sign > 0 ? 127 : 128) : (sign > 0 ? most : 0));
      for (float& x : p.x) x = 5;
      for (size_t i = 0; i < p.x.size() / 2; ++i) p.x[i] = -5;
      const std::vector<float> defined = p.defined(false);
      for_each_target([&] {
        for (const IntegerChoice choice : {IntegerChoice::kBest, IntegerChoice::kPlain})
          CHECK(same_bits(p.computed(false, choice), defined));
      });
    }
}

TEST_CASE("a product in integers of a row does not depend on the other rows") {
  Draws draws(43);
  for (const WeightFormat format : formats_of_integers()) {
    const IntegerProduct p = IntegerProduct::draw(draws, format, 300, 70, 192, true);
    const std::vector<float> all = p.computed(true, IntegerChoice::kBest);
    for (const int64_t n : {0, 1, 2, 17, 299}) {
      IntegerProduct one = p;
      one.m = 1;
      one.x.assign(p.x.begin() + n * p.width, p.x.begin() + (n + 1) * p.width);
      const std::vector<float> alone = one.computed(true, IntegerChoice::kBest);
      CHECK(std::equal(alone.begin(), alone.end(), all.begin() + n * p.rows));
    }
  }
}

TEST_CASE("a row with a value that is not finite makes its products in integers NaN, no others") {
  Draws draws(44);
  for (const float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    IntegerProduct p = IntegerProduct::draw(draws, WeightFormat::kInt8, 3, 20, 128, true);
    const std::vector<float> before = p.computed(false, IntegerChoice::kBest);
    p.x[70] = value;
    const std::vector<float> after = p.computed(false, IntegerChoice::kBest);
    for (size_t i = 0; i < after.size(); ++i) {
      if (i < 20)
        CHECK(std::isnan(after[i]));
      else
        CHECK(after[i] == before[i]);
    }
  }
}

TEST_CASE(
    "the integers of codes are the values where those are whole, else 127ths of the largest") {
  const CodeIntegers mxfp4 = integers_of(WeightFormat::kMxFp4),
                     nf4 = integers_of(WeightFormat::kNf4);
  CHECK(mxfp4.unit == 0.5f);
  CHECK(nf4.unit == 1.0f / 127);
  for (size_t i = 0; i < 16; ++i) {
    CHECK(static_cast<float>(mxfp4.table[i]) * mxfp4.unit == temper::ops::kE2m1Values[i]);
    CHECK(nf4.table[i] == std::nearbyint(temper::ops::kNf4Values[i] * 127));
  }
  // IQ4_NL's (llama.cpp's ggml-common.h).
  const float whole[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                           1,    13,   25,  38,  53,  69,  89,  113};
  const CodeIntegers same = integers_of(whole);
  CHECK(same.unit == 1);
  for (size_t i = 0; i < 16; ++i) CHECK(static_cast<float>(same.table[i]) == whole[i]);
  CHECK(integers_of(WeightFormat::kInt8).unit == 1);
}

namespace temper::ops::backends {

TEST_CASE("aten: products in integers are native's, to the bit") {
  for (const FormatRow& row : kWeightFormats)
    for (const auto& [out, any] :
         {std::pair<int64_t, int64_t>{7, 33}, {64, 64}, {33, 96}, {5, 192}, {3, 200}, {1, 1}}) {
      if (!has_integers(row.format)) continue;
      const int64_t in = allowed_width(row.format, any);
      const at::Tensor bias = random({out}, 46, at::kFloat);
      for (const bool offsets : {true, false})
        for (const int64_t rows : {0, 1, 19}) {
          const Codes codes = random_codes(row.format, out, in, 45, 32, offsets);
          const at::Tensor x = random({rows, in}, 47, at::kFloat, 9);
          Tensors found;
          for (const Backend* backend : {&native_backend(), &aten_backend()}) {
            Weight w(backend->from_codes(codes, at::kCPU));
            w.arithmetic = Arithmetic::kInteger;
            found.push_back(at::full({rows, out}, 3.0f));
            backend->multiply(x, w, found.back(), bias);
          }
          CAPTURE(row.name);
          CHECK(at::equal(found[0], found[1]));
        }
    }
}

TEST_CASE(
    "gradients through a product in integers are those of the values, at what was not rounded") {
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kNf4}) {
    const at::Tensor values = random({40, 64}, 48, at::kFloat),
                     dy = random({9, 40}, 49, at::kFloat);
    const at::Tensor low = random({4, 64}, 50, at::kFloat);
    std::vector<at::Tensor> dx, da, y;
    for (const Arithmetic arithmetic : {Arithmetic::kExact, Arithmetic::kInteger}) {
      Weight base(quantize(values, format));
      base.arithmetic = arithmetic;
      at::Tensor x = random({9, 64}, 51, at::kFloat).requires_grad_(true),
                 a = low.clone().requires_grad_(true);
      const auto out = linear(LinearInput::plain(x), {{base, {}}, {Weight(a), {}}});
      y.push_back(out[0].detach());
      ((out[0] * dy).sum() + out[1].sum()).backward();
      dx.push_back(x.grad());
      da.push_back(a.grad());
    }
    CHECK(at::equal(dx[0], dx[1]));
    CHECK(at::equal(da[0], da[1]));
    CHECK(!at::equal(y[0], y[1]));
    CHECK(error(y[1], y[0]) < 0.02);
  }
}

}  // namespace temper::ops::backends
