// AVX512-BF16's products, with a model of its instructions where the processor lacks them.
#include "temper/ops/native/kernels/bfloat16/bfloat16_dot.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/ops/kernels.h"

using namespace temper::kernels;

namespace {

float flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}
float upper(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }
float lower(uint32_t pair) { return std::bit_cast<float>(pair << 16); }

// The instructions as Intel's manual defines them. VDPBF16PS: the upper halves first, each step
// rounded to nearest, denormal numbers zero.
struct Model {
  using Vec = std::array<uint32_t, 16>;
  static Vec zero() { return {}; }
  static Vec load(const void* from) {
    Vec x;
    std::memcpy(x.data(), from, sizeof x);
    return x;
  }
  static void store(const Vec& x, float* to) { std::memcpy(to, x.data(), sizeof x); }
  static Vec broadcast(uint32_t value) {
    Vec x;
    x.fill(value);
    return x;
  }
  static Vec interleave_lower(const Vec& a, const Vec& b) { return interleaved(a, b, 0); }
  static Vec interleave_upper(const Vec& a, const Vec& b) { return interleaved(a, b, 2); }
  static Vec even_blocks(const Vec& a, const Vec& b) { return blocks({a, a, b, b}, {0, 2, 0, 2}); }
  static Vec odd_blocks(const Vec& a, const Vec& b) { return blocks({a, a, b, b}, {1, 3, 1, 3}); }
  static Vec lower_blocks(const Vec& a, const Vec& b) { return blocks({a, b, a, b}, {0, 0, 1, 1}); }
  static Vec upper_blocks(const Vec& a, const Vec& b) { return blocks({a, b, a, b}, {2, 2, 3, 3}); }
  static Vec dot(const Vec& sum, const Vec& a, const Vec& b) {
    Vec y;
    for (size_t i = 0; i < 16; ++i) {
      const float first = flushed(std::fma(flushed(upper(a[i])), flushed(upper(b[i])),
                                           flushed(std::bit_cast<float>(sum[i]))));
      y[i] = std::bit_cast<uint32_t>(
          flushed(std::fma(flushed(lower(a[i])), flushed(lower(b[i])), first)));
    }
    return y;
  }

 private:
  static Vec interleaved(const Vec& a, const Vec& b, size_t first) {
    Vec y;
    for (size_t block = 0; block < 16; block += 4)
      for (size_t i = 0; i < 4; ++i) {
        const size_t from = block + first + i / 2;
        const uint32_t x = i % 2 ? a[from] >> 16 : a[from] & 0xffffu,
                       z = i % 2 ? b[from] >> 16 : b[from] & 0xffffu;
        y[block + i] = z << 16 | x;
      }
    return y;
  }
  static Vec blocks(const std::array<Vec, 4>& from, const std::array<size_t, 4>& which) {
    Vec y;
    for (size_t block = 0; block < 4; ++block)
      for (size_t i = 0; i < 4; ++i) y[4 * block + i] = from[block][4 * which[block] + i];
    return y;
  }
};

// Other instructions than the manual's: the lower halves first.
struct OtherOrder : Model {
  static Vec dot(const Vec& sum, Vec a, Vec b) {
    for (size_t i = 0; i < 16; ++i) {
      a[i] = std::rotl(a[i], 16);
      b[i] = std::rotl(b[i], 16);
    }
    return Model::dot(sum, a, b);
  }
};
// Or that keep denormal numbers.
struct KeepsDenormals : Model {
  static Vec dot(const Vec& sum, const Vec& a, const Vec& b) {
    Vec y;
    for (size_t i = 0; i < 16; ++i)
      y[i] = std::bit_cast<uint32_t>(
          std::fma(lower(a[i]), lower(b[i]),
                   std::fma(upper(a[i]), upper(b[i]), std::bit_cast<float>(sum[i]))));
    return y;
  }
};

template <class Isa>
void tile(int rows, long depth, const unsigned* a, long a_row, const unsigned short* b, float* c,
          long c_row, bool from_c) {
  dot_tile_of<Isa>(rows, depth, a, a_row, b, c, c_row, from_c);
}

}  // namespace

TEST_CASE("instructions for bfloat16 are used only if they keep the chain") {
  CHECK(keeps_the_chain(tile<Model>));
  CHECK(!keeps_the_chain(tile<OtherOrder>));
  CHECK(!keeps_the_chain(tile<KeepsDenormals>));
  CHECK(bfloat16_products() != Bfloat16Products::kOtherBits);
}

TEST_CASE(
    "a pair of k has the rounded earlier value in its high half, and -0 for a missing later one") {
  Draws draws(5);
  for (const int64_t depth : {1, 2, 15, 31, 32, 64, 101}) {
    const int64_t rows = draws.between(1, 50), halves = (depth + 1) / 2;
    const std::vector<float> a = draws.floats(rows * depth);
    for (const bool transposed : {false, true}) {
      const MatrixView<float> left =
          transposed ? MatrixView<float>{a.data(), 1, rows} : MatrixView<float>{a.data(), depth, 1};
      std::vector<uint32_t> expected;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t p = 0; p < halves; ++p) {
          const auto at = [&](int64_t k) {
            return k < depth ? to_bfloat16(left.data[i * left.row_stride + k * left.col_stride])
                             : BFloat16Bits{0x8000};
          };
          expected.push_back(static_cast<uint32_t>(at(2 * p)) << 16 | at(2 * p + 1));
        }
      for_each_target([&] {
        std::vector<uint32_t> found(expected.size());
        pack_pairs(left, rows, depth, found.data());
        CHECK(found == expected);
      });
    }
  }
}

TEST_CASE("products by instructions for bfloat16 have the bits of those in float32") {
  Draws draws(11);
  for (int trial = 0; trial < 25; ++trial) {
    // Many rows far down k: more than is packed at once.
    const int64_t m = trial % 10 == 0 ? draws.between(96, 120) : draws.between(1, 60),
                  n = draws.between(1, 100),
                  k = trial % 10 == 0  ? draws.between(2040, 2060)
                      : trial % 5 == 0 ? draws.between(250, 530)
                                       : draws.between(1, 40);
    const bool transposed = trial % 2 == 1, accumulate = trial % 3 == 0;
    // Magnitudes at both ends of the range, so that sums underflow, too.
    std::vector<float> a = draws.floats(m * k), b = draws.floats(k * n);
    for (size_t i = 0; i < a.size(); i += 7) a[i] *= 1e-30f;
    for (size_t i = 0; i < b.size(); i += 5) b[i] *= 1e-9f;
    const MatrixView<float> left =
        transposed ? MatrixView<float>{a.data(), 1, m} : MatrixView<float>{a.data(), k, 1};
    const std::vector<float> before = draws.floats(m * n);

    std::vector<BFloat16Bits> panels(static_cast<size_t>(packed_size(k, n)));
    pack(MatrixView<float>{b.data(), n, 1}, k, n, panels.data());
    std::vector<float> defined = before;
    gemm(m, n, k, left, panels.data(), defined.data(), n,
         {.accumulate = accumulate, .rounding = Rounding::kChain});

    const int64_t columns = (n + kDotColumns - 1) / kDotColumns * kDotColumns;
    std::vector<BFloat16Bits> wide(static_cast<size_t>(columns * k));
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < k; ++i)
        wide[static_cast<size_t>((j / kDotColumns * k + i) * kDotColumns + j % kDotColumns)] =
            to_bfloat16(b[static_cast<size_t>(i * n + j)]);
    std::vector<uint32_t> pairs(static_cast<size_t>(kDotPairs));
    DotLeft packed{pairs.data()};
    std::vector<float> found = before;
    for (int64_t j = 0; j < n; j += 2 * kDotColumns)  // ranges of columns, as tasks are
      multiply_by_dot(tile<Model>, m, std::min<int64_t>(2 * kDotColumns, n - j), k, left,
                      wide.data() + j * k, kDotColumns * k, found.data() + j, n, accumulate,
                      packed);
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    CHECK(same_bits(found, defined));
  }
}
