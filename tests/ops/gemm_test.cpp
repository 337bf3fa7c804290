#include "temper/ops/native/kernels/gemm.h"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>

#include "tests/ops/block_sums.h"
#include "tests/ops/kernels.h"

using namespace temper::kernels;

namespace {

struct Product {
  int64_t m, n, k;
  bool a_transposed, b_transposed, accumulate, biased;
  std::vector<float> a, b, c, bias;

  static Product draw(Draws& draws, int64_t m, int64_t n, int64_t k) {
    Product p{m,
              n,
              k,
              draws.below(2) == 1,
              draws.below(2) == 1,
              draws.below(2) == 1,
              draws.below(2) == 1,
              {},
              {},
              {},
              {}};
    p.a = draws.floats(m * k);
    p.b = draws.floats(k * n);
    p.c = draws.floats(m * n);
    p.bias = draws.floats(n);
    return p;
  }
  MatrixView<float> left() const {
    return a_transposed ? MatrixView<float>{a.data(), 1, m} : MatrixView<float>{a.data(), k, 1};
  }
  MatrixView<float> right() const {
    return b_transposed ? MatrixView<float>{b.data(), 1, k} : MatrixView<float>{b.data(), n, 1};
  }
  std::vector<float> packed() const {
    std::vector<float> panels(static_cast<size_t>(packed_size(k, n)));
    pack(right(), k, n, panels.data());
    return panels;
  }
  std::vector<float> computed() const {
    std::vector<float> out = c;
    gemm(m, n, k, left(), packed().data(), out.data(), n,
         {.accumulate = accumulate, .bias = biased ? bias.data() : nullptr});
    return out;
  }
  std::vector<float> computed_in_bfloat16(Rounding rounding = Rounding::kNone) const {
    std::vector<BFloat16Bits> panels(static_cast<size_t>(packed_size(k, n)));
    pack(right(), k, n, panels.data());
    std::vector<BFloat16Bits> stored, again(panels.size());
    for (const float x : b) stored.push_back(to_bfloat16(x));
    const MatrixView<float> view = right();
    pack({stored.data(), view.row_stride, view.col_stride}, k, n, again.data());
    CHECK(again == panels);
    std::vector<float> out = c;
    gemm(m, n, k, left(), panels.data(), out.data(), n,
         {.accumulate = accumulate, .bias = biased ? bias.data() : nullptr, .rounding = rounding});
    return out;
  }
  std::vector<float> defined() const {
    std::vector<float> out = c;
    reference_gemm<float>(m, n, k, left(), right(), out.data(), n, accumulate,
                          biased ? bias.data() : nullptr);
    return out;
  }
};

}  // namespace

TEST_CASE("every SIMD target and number of threads gives the bits of the three-line loop") {
  Draws draws(1);
  std::vector<Product> products;
  for (int trial = 0; trial < 30; ++trial)
    products.push_back(
        Product::draw(draws, draws.between(1, 70), draws.between(1, 400), draws.between(1, 600)));
  // Ends of tiles and panels, and one of everything.
  for (const int64_t m : {1, 2, 3, 6, 7, 12, 13})
    for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 64, 65})
      products.push_back(Product::draw(draws, m, n, draws.between(1, 9)));
  // Beyond one block of k, for few rows and for many.
  for (const int64_t m : {1, 5, 25, 48, 49})
    for (int trial = 0; trial < 3; ++trial)
      products.push_back(Product::draw(draws, m, 70, draws.between(2040, 2100)));
  for (const Product& p : products) {
    CAPTURE(p.m);
    CAPTURE(p.n);
    CAPTURE(p.k);
    const std::vector<float> defined = p.defined();
    for_each_target([&] { CHECK(same_bits(p.computed(), defined)); });
  }
}

TEST_CASE("a row's product does not depend on the rows beside it") {
  for_each_target([] {
    Draws draws(2);
    Product p = Product::draw(draws, 37, 331, 100);
    p.a_transposed = false;
    const std::vector<float> all = p.computed();
    for (int64_t row = 0; row < p.m; ++row) {
      Product alone = p;
      alone.m = 1;
      alone.a.assign(p.a.begin() + row * p.k, p.a.begin() + (row + 1) * p.k);
      alone.c.assign(p.c.begin() + row * p.n, p.c.begin() + (row + 1) * p.n);
      CHECK(same_bits(alone.computed(), {all.begin() + row * p.n, all.begin() + (row + 1) * p.n}));
    }
  });
}

TEST_CASE("a range of panels gives those columns of the whole product") {
  for_each_target([] {
    Draws draws(3);
    Product p = Product::draw(draws, 5, 150, 72);
    p.accumulate = p.biased = false;
    const std::vector<float> panels = p.packed(), all = p.computed();
    const int64_t first = 2 * panel_width(), count = p.n - first;
    std::vector<float> part(static_cast<size_t>(p.m * count));
    gemm(p.m, count, p.k, p.left(), panels.data(), part.data(), count, {.panel_begin = first});
    for (int64_t i = 0; i < p.m; ++i)
      CHECK(std::memcmp(part.data() + i * count, all.data() + i * p.n + first,
                        static_cast<size_t>(count) * sizeof(float)) == 0);
  });
}

TEST_CASE("bfloat16 panels give the product of the rounded values on every SIMD target") {
  Draws draws(4);
  for_each_target([&] {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{1, 331, 72}, {5, 16, 300}, {67, 100, 257}, {30, 70, 2100}}) {
      Product p = Product::draw(draws, m, n, k);
      const std::vector<float> found = p.computed_in_bfloat16();
      const std::vector<float> unrounded = p.defined();
      for (float& x : p.b) x = to_float(to_bfloat16(x));
      CHECK(same_bits(found, p.defined()));
      CHECK(!same_bits(found, unrounded));
    }
  });
}

TEST_CASE("bfloat16 rounds to nearest, ties to even, and keeps what is no number") {
  CHECK(to_bfloat16(1.0f) == 0x3f80);
  CHECK(to_bfloat16(std::bit_cast<float>(0x3f808000u)) == 0x3f80);  // halfway, even below
  CHECK(to_bfloat16(std::bit_cast<float>(0x3f818000u)) == 0x3f82);  // halfway, even above
  CHECK(to_bfloat16(std::bit_cast<float>(0x3f808001u)) == 0x3f81);
  CHECK(to_bfloat16(std::bit_cast<float>(0x7f7fffffu)) ==
        0x7f80);  // the largest rounds to infinity
  CHECK(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("a left side that is rounded is one that was rounded before") {
  Draws draws(7);
  std::vector<Product> products;
  for (int trial = 0; trial < 12; ++trial)
    products.push_back(
        Product::draw(draws, draws.between(1, 300), draws.between(1, 200), draws.between(1, 600)));
  for (const int64_t m : {1, 5, 24, 25, 48, 49})
    products.push_back(Product::draw(draws, m, 130, draws.between(2040, 2100)));
  for (const Product& p : products) {
    CAPTURE(p.m);
    CAPTURE(p.n);
    CAPTURE(p.k);
    Product before = p;
    for (float& x : before.a) x = to_float(to_bfloat16(x));
    for (float& x : before.b) x = to_float(to_bfloat16(x));
    const std::vector<float> defined = before.defined();
    for_each_target([&] { CHECK(same_bits(p.computed_in_bfloat16(Rounding::kChain), defined)); });
    CHECK((p.k == 1 || !same_bits(p.computed_in_bfloat16(), defined)));
  }
}

TEST_CASE("a left side that is rounded: denormal numbers are zero, read and summed") {
  const auto one = [](float a, float b, Rounding rounding) {
    std::vector<BFloat16Bits> panels(static_cast<size_t>(packed_size(1, 1)));
    pack(MatrixView<float>{&b, 1, 1}, 1, 1, panels.data());
    float c = 7;
    gemm(1, 1, 1, {&a, 1, 1}, panels.data(), &c, 1, {.rounding = rounding});
    return c;
  };
  for_each_target([&] {
    for (const Rounding rounding : {Rounding::kChain, Rounding::kBlocks}) {
      CHECK(one(1e-30f, 1e-10f, Rounding::kNone) > 0);
      CHECK(one(1e-30f, 1e-10f, rounding) == 0);
      CHECK(one(1e-40f, 1e20f, Rounding::kNone) > 0);
      CHECK(one(1e-40f, 1e20f, rounding) == 0);
      CHECK(one(1e-30f, 1e-10f, Rounding::kNone) > 0);  // and are again what they are after it
    }
  });
}

TEST_CASE("sums in blocks have their definition's bits on every SIMD target") {
  Draws draws(13);
  std::vector<Product> products;
  for (int trial = 0; trial < 12; ++trial)
    products.push_back(
        Product::draw(draws, draws.between(1, 300), draws.between(1, 200), draws.between(1, 200)));
  for (const int64_t k : {1, 2, 31, 32, 33, 64})
    products.push_back(Product::draw(draws, draws.between(1, 20), 70, k));
  for (const int64_t m : {1, 5, 24, 25, 49, 257})
    products.push_back(Product::draw(draws, m, 70, draws.between(2040, 2100)));
  for (const Product& p : products) {
    CAPTURE(p.m);
    CAPTURE(p.n);
    CAPTURE(p.k);
    const std::vector<float> defined = block_sums(p.m, p.n, p.k, p.left(), p.right(), p.c,
                                                  p.accumulate, p.biased ? p.bias.data() : nullptr);
    for_each_target([&] { CHECK(same_bits(p.computed_in_bfloat16(Rounding::kBlocks), defined)); });
  }
}
