// AMX's products, with a model of its instructions where the processor lacks them.
#include "temper/ops/native/kernels/bfloat16/bfloat16_tiles.h"

#include <bit>
#include <cmath>

#include "tests/ops/block_sums.h"
#include "tests/ops/kernels.h"

using namespace temper::kernels;

namespace {

float high(uint32_t pair) { return without_denormal(std::bit_cast<float>(pair & 0xffff0000u)); }
float low(uint32_t pair) { return without_denormal(std::bit_cast<float>(pair << 16)); }

bool started = false;
void start() {
  CHECK(!started);
  started = true;
}
void stop() {
  CHECK(started);
  started = false;
}

// TDPBF16PS as Intel's manual defines it.
float tile_sum(const uint32_t* a, const uint32_t* b, float c) {
  float first = 0, second = 0;
  for (int64_t p = 0; p < kMatrixPairs; ++p) {
    first = without_denormal(std::fma(high(a[p]), high(b[p * 32]), first));
    second = without_denormal(std::fma(low(a[p]), low(b[p * 32]), second));
  }
  return without_denormal(without_denormal(c) + without_denormal(first + second));
}
// The values of a pair one after the other, as VDPBF16PS adds them.
float one_chain(const uint32_t* a, const uint32_t* b, float c) {
  for (int64_t p = 0; p < kMatrixPairs; ++p)
    c = without_denormal(std::fma(low(a[p]), low(b[p * 32]),
                                  without_denormal(std::fma(high(a[p]), high(b[p * 32]), c))));
  return c;
}
float with_denormals(const uint32_t* a, const uint32_t* b, float c) {
  float first = 0, second = 0;
  for (int64_t p = 0; p < kMatrixPairs; ++p) {
    first = std::fma(std::bit_cast<float>(a[p] & 0xffff0000u),
                     std::bit_cast<float>(b[p * 32] & 0xffff0000u), first);
    second =
        std::fma(std::bit_cast<float>(a[p] << 16), std::bit_cast<float>(b[p * 32] << 16), second);
  }
  return c + (first + second);
}

template <float (*kSum)(const uint32_t*, const uint32_t*, float)>
void product(int64_t row_tiles, int64_t blocks, const uint32_t* a, int64_t a_rows,
             const uint32_t* b, float* c, int64_t c_row, bool from_c) {
  CHECK(started);
  for (int64_t i = 0; i < 16 * row_tiles; ++i)
    for (int64_t j = 0; j < 32; ++j) {
      float sum = from_c ? c[i * c_row + j] : 0;
      for (int64_t block = 0; block < blocks; ++block)
        sum = kSum(a + i / 16 * a_rows + block * kMatrixTile + i % 16 * kMatrixPairs,
                   b + block * kMatrixPairs * 32 + j, sum);
      c[i * c_row + j] = sum;
    }
}

void pair_columns(int64_t depth, const BFloat16Bits* panel, uint32_t* pairs) {
  const auto at = [&](int64_t k, int64_t j) { return k < depth ? uint32_t{panel[k * 32 + j]} : 0; };
  for (int64_t p = 0; p < kMatrixPairs; ++p)
    for (int64_t j = 0; j < 32; ++j) pairs[p * 32 + j] = at(2 * p, j) << 16 | at(2 * p + 1, j);
}
void pair_columns_beyond(int64_t, const BFloat16Bits* panel, uint32_t* pairs) {
  pair_columns(kBlockDepth, panel, pairs);
}

}  // namespace

TEST_CASE("matrix instructions are used only if they keep the blocks' sums") {
  CHECK(keeps_block_sums({start, stop, product<tile_sum>, pair_columns}));
  CHECK(!keeps_block_sums({start, stop, product<one_chain>, pair_columns}));
  CHECK(!keeps_block_sums({start, stop, product<with_denormals>, pair_columns}));
  CHECK(!keeps_block_sums({start, stop, product<tile_sum>, pair_columns_beyond}));
  CHECK(matrix_products() != Bfloat16Products::kOtherBits);
}

TEST_CASE("products by matrix instructions have the bits of the blocks' sums") {
  Draws draws(19);
  const MatrixInstructions model{start, stop, product<tile_sum>, pair_columns};
  std::vector<uint32_t> left(static_cast<size_t>(kMatrixLeft)),
      right(static_cast<size_t>(kMatrixRight));
  for (int trial = 0; trial < 24; ++trial) {
    // Many rows far down k: more than is packed at once.
    const bool large = trial % 8 == 0;
    const int64_t m = large ? draws.between(200, kMatrixRows) : draws.between(1, 60),
                  n = large ? draws.between(1, 40) : draws.between(1, 100),
                  k = large            ? draws.between(2040, 2100)
                      : trial % 4 == 0 ? draws.between(500, 530)
                                       : draws.between(1, 70);
    const bool transposed = trial % 2 == 1, accumulate = trial % 3 == 0;
    // Magnitudes at both ends of the range, so that sums underflow, too.
    std::vector<float> a = draws.floats(m * k), b = draws.floats(k * n);
    for (size_t i = 0; i < a.size(); i += 7) a[i] *= 1e-30f;
    for (size_t i = 0; i < b.size(); i += 5) b[i] *= 1e-9f;
    const MatrixView<float> rows =
        transposed ? MatrixView<float>{a.data(), 1, m} : MatrixView<float>{a.data(), k, 1};
    const std::vector<float> before = draws.floats(m * n);
    const std::vector<float> defined =
        block_sums(m, n, k, rows, {b.data(), n, 1}, before, accumulate);

    const int64_t columns = (n + 31) / 32 * 32;
    std::vector<BFloat16Bits> wide(static_cast<size_t>(columns * k));
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < k; ++i)
        wide[static_cast<size_t>((j / 32 * k + i) * 32 + j % 32)] =
            to_bfloat16(b[static_cast<size_t>(i * n + j)]);
    for (const MatrixInstructions* instructions :
         {&model, matrix_products() == Bfloat16Products::kInstructions ? &kAmx : nullptr}) {
      if (!instructions) continue;
      MatrixScratch scratch{left.data(), right.data()};
      std::vector<float> found = before;
      for (int64_t first = 0; first < n; first += 64)  // ranges of columns, as tasks are
        multiply_by_matrices(
            *instructions, m, std::min<int64_t>(64, n - first), k, rows,
            [&](int64_t j, int64_t k0, int64_t depth) {
              CHECK(depth <= kMatrixDepth);
              CHECK(k0 + depth <= k);
              return wide.data() + (first + j) * k + k0 * 32;
            },
            found.data() + first, n, accumulate, scratch);
      CAPTURE(m);
      CAPTURE(n);
      CAPTURE(k);
      CHECK(same_bits(found, defined));
    }
  }
}
