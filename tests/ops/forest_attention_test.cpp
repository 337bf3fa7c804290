#include "temper/ops/native/kernels/attention/forest_attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "temper/ops/forest.h"
#include "temper/ops/native/kernels/attention/reference_attention.h"
#include "tests/ops/attention.h"
#include "tests/ops/kernels.h"

using namespace temper::kernels;
using temper::Forest;

namespace {

std::vector<int32_t> blank(int64_t n) { return std::vector<int32_t>(static_cast<size_t>(n)); }

// A few trees, up to three generations deep.
Forest random_forest(Draws& draws) {
  Forest forest;
  for (int root = 0; root < 4; ++root) {
    const int64_t top = forest.add_root(blank(draws.between(1, 50)));
    const int64_t children = draws.below(4);
    for (int64_t c = 0; c < children; ++c) {
      const int64_t child = forest.add_child(top, blank(draws.between(1, 40)));
      if (draws.below(2)) continue;
      forest.add_child(child, blank(draws.between(1, 20)));
      forest.add_child(child, blank(draws.between(1, 9)));
    }
  }
  return forest;
}

// Odd widths, groups of 1 to 16 query heads, with and without soft caps and windows.
std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all;
  const struct {
    int64_t kv, group, dim;
  } sizes[] = {{1, 1, 8}, {2, 2, 18}, {1, 8, 64}, {2, 16, 12}, {3, 3, 72}};
  for (const auto& [kv, group, dim] : sizes)
    for (const double cap : {0.0, 5.0})
      for (const int64_t window : {0, 1, 21})
        all.push_back({kv * group, kv, dim, 0.3, cap, window});
  return all;
}

// The same once more where the pages hold keys alone.
std::vector<AttentionShape> with_values_in_keys(std::vector<AttentionShape> shapes) {
  const std::vector<AttentionShape> before = shapes;
  for (AttentionShape s : before) {
    s.values_in_keys = true;
    shapes.push_back(s);
  }
  return shapes;
}

template <class T>
struct Inputs {
  std::vector<T> q, k, v, dout;
};
Inputs<float> draw_inputs(Draws& draws, const AttentionShape& s, int64_t tokens) {
  const int64_t wide = tokens * s.num_heads * s.head_dim,
                narrow = tokens * s.num_kv_heads * s.head_dim;
  return {draws.floats(wide), draws.floats(narrow), draws.floats(narrow), draws.floats(wide)};
}

template <class T>
struct Outputs {
  std::vector<T> out, lse, dq, dk, dv;
};

template <class T>
Outputs<T> run(const AttentionShape& s, const Forest& f, const Inputs<T>& in) {
  Outputs<T> o{std::vector<T>(in.q.size()),
               std::vector<T>(static_cast<size_t>(f.num_tokens() * s.num_heads)),
               std::vector<T>(in.q.size()), std::vector<T>(in.k.size()),
               std::vector<T>(in.v.size())};
  attention<T>(s, view(f), all_queries(f), in.q.data(), in.k.data(), in.v.data(), o.out.data(),
               o.lse.data());
  attention_backward<T>(s, view(f), all_queries(f), in.q.data(), in.k.data(), in.v.data(),
                        o.out.data(), o.lse.data(), in.dout.data(), o.dq.data(), o.dk.data(),
                        o.dv.data());
  return o;
}

// Tokens [begin, end) of rows that are `width` wide.
std::vector<float> rows(const std::vector<float>& x, int64_t width, int64_t begin, int64_t end) {
  return {x.begin() + begin * width, x.begin() + end * width};
}

// One sequence's attention, some of its next tokens at a time.
std::vector<float> through_pages(const AttentionShape& s, const Inputs<float>& in, int64_t n,
                                 Draws& draws) {
  // What no token has written must not be read: 0 times NaN is NaN.
  const int64_t count = n / temper::kernels::page_tokens() + 1,
                floats = temper::kernels::page_bytes(s) / 4;
  std::vector<float> memory(static_cast<size_t>(count * floats),
                            std::numeric_limits<float>::quiet_NaN());
  std::vector<void*> pages;
  for (int64_t p = 0; p < count; ++p) pages.push_back(memory.data() + p * floats);
  const int64_t wide = s.num_heads * s.head_dim, narrow = s.num_kv_heads * s.head_dim;
  std::vector<float> out(in.q.size());
  for (int64_t i = 0; i < n;) {
    const int64_t chunk = std::min(n - i, draws.below(2) == 0 ? draws.between(1, 40) : 1);
    std::vector<CachedQuery> queries;
    for (int64_t j = 0; j < chunk; ++j) queries.push_back({pages.data(), i + j});
    write_pages(s, chunk, queries.data(), in.k.data() + i * narrow, in.v.data() + i * narrow);
    attention_cached(s, chunk, queries.data(), in.q.data() + i * wide, out.data() + i * wide);
    i += chunk;
  }
  return out;
}

}  // namespace

TEST_CASE("attention gives the bits of its definition on every target and number of threads") {
  uint32_t seed = 0;
  for (const AttentionShape& s : shapes()) {
    Draws draws(++seed);
    CAPTURE(seed);
    const Forest f = random_forest(draws);
    const Inputs<float> in = draw_inputs(draws, s, f.num_tokens());
    std::vector<float> out(in.q.size()), lse(static_cast<size_t>(f.num_tokens() * s.num_heads));
    reference_attention<float, FloatMath>(s, view(f), all_queries(f), in.q.data(), in.k.data(),
                                          in.v.data(), out.data(), lse.data());
    for_each_target([&] {
      std::vector<float> found(out.size()), found_lse(lse.size());
      attention<float>(s, view(f), all_queries(f), in.q.data(), in.k.data(), in.v.data(),
                       found.data(), found_lse.data());
      CHECK(same_bits(found, out));
      CHECK(same_bits(found_lse, lse));
    });
  }
}

TEST_CASE("gradients are the bits of their definition on every target and number of threads") {
  uint32_t seed = 400;
  for (const AttentionShape& s : shapes()) {
    Draws draws(++seed);
    CAPTURE(seed);
    const Forest f = random_forest(draws);
    const Inputs<float> in = draw_inputs(draws, s, f.num_tokens());
    Outputs<float> expected = run(s, f, in);
    reference_attention_backward<float, FloatMath>(
        s, view(f), all_queries(f), in.q.data(), in.k.data(), in.v.data(), expected.out.data(),
        expected.lse.data(), in.dout.data(), expected.dq.data(), expected.dk.data(),
        expected.dv.data());
    for_each_target([&] {
      const Outputs<float> found = run(s, f, in);
      CHECK(same_bits(found.dq, expected.dq));
      CHECK(same_bits(found.dk, expected.dk));
      CHECK(same_bits(found.dv, expected.dv));
    });
  }
}

TEST_CASE("rows of several blocks of queries and keys give the bits of their definition") {
  uint32_t seed = 450;
  for (const AttentionShape& s :
       {AttentionShape{4, 1, 20, 0.3}, AttentionShape{2, 2, 18, 0.3, 0, 301},
        AttentionShape{3, 1, 8, -0.2, 5.0}}) {
    Draws draws(++seed);
    CAPTURE(seed);
    const int64_t n = draws.between(560, 640), wide = s.num_heads * s.head_dim;
    Forest f;
    f.add_root(blank(n));
    f.add_child(0, blank(130));
    f.add_child(0, blank(7));
    const Inputs<float> in = draw_inputs(draws, s, f.num_tokens());
    Outputs<float> expected = run(s, f, in);
    reference_attention<float, FloatMath>(s, view(f), all_queries(f), in.q.data(), in.k.data(),
                                          in.v.data(), expected.out.data(), expected.lse.data());
    reference_attention_backward<float, FloatMath>(
        s, view(f), all_queries(f), in.q.data(), in.k.data(), in.v.data(), expected.out.data(),
        expected.lse.data(), in.dout.data(), expected.dq.data(), expected.dk.data(),
        expected.dv.data());
    Inputs<float> root = in;
    root.q.resize(static_cast<size_t>(n * wide));
    for_each_target([&] {
      const Outputs<float> found = run(s, f, in);
      CHECK(same_bits(found.out, expected.out));
      CHECK(same_bits(found.lse, expected.lse));
      CHECK(same_bits(found.dq, expected.dq));
      CHECK(same_bits(found.dk, expected.dk));
      CHECK(same_bits(found.dv, expected.dv));
      CHECK(same_bits(through_pages(s, root, n, draws), rows(expected.out, wide, 0, n)));
    });
  }
}

// float32 against float64: sums of at most 120 keys of products below 1. A missing or doubled key
// would show at 1e-2.
TEST_CASE("gradients are those of float64, the same bits for any number of threads") {
  uint32_t seed = 100;
  for (const AttentionShape& s : shapes()) {
    Draws draws(++seed);
    CAPTURE(seed);
    const Forest f = random_forest(draws);
    const Inputs<float> in = draw_inputs(draws, s, f.num_tokens());
    const auto wide = [](const std::vector<float>& x) {
      return std::vector<double>(x.begin(), x.end());
    };
    const Outputs<double> exact =
        run<double>(s, f, {wide(in.q), wide(in.k), wide(in.v), wide(in.dout)});
    omp_set_num_threads(1);
    const Outputs<float> found = run(s, f, in);
    omp_set_num_threads(2);
    const Outputs<float> again = run(s, f, in);
    CHECK(largest_difference(found.dq, exact.dq) < 1e-4);
    CHECK(largest_difference(found.dk, exact.dk) < 1e-4);
    CHECK(largest_difference(found.dv, exact.dv) < 1e-4);
    CHECK(same_bits(found.dq, again.dq));
    CHECK(same_bits(found.dk, again.dk));
    CHECK(same_bits(found.dv, again.dv));
  }
}

TEST_CASE("attention through pages, in any chunks, gives the bits of the whole sequence") {
  uint32_t seed = 200;
  for (const AttentionShape& s : with_values_in_keys(shapes())) {
    Draws draws(++seed);
    CAPTURE(seed);
    Forest f;
    const int64_t n = draws.between(1, 100);
    f.add_root(blank(n));
    Inputs<float> in = draw_inputs(draws, s, n);
    if (s.values_in_keys) in.v = in.k;
    std::vector<float> whole(in.q.size());
    attention<float>(s, view(f), all_queries(f), in.q.data(), in.k.data(), in.v.data(),
                     whole.data(), nullptr);
    for_each_target([&] { CHECK(same_bits(through_pages(s, in, n, draws), whole)); });
  }
}

TEST_CASE("pages of 16 bits give the bits of keys and values that were rounded") {
  uint32_t seed = 250;
  for (AttentionShape s : with_values_in_keys(shapes()))
    for (const CacheDtype dtype : {CacheDtype::kFloat16, CacheDtype::kBFloat16}) {
      Draws draws(++seed);
      CAPTURE(seed);
      Forest f;
      const int64_t n = draws.between(1, 100), all = temper::kernels::page_bytes(s);
      f.add_root(blank(n));
      Inputs<float> in = draw_inputs(draws, s, n);
      if (s.values_in_keys) in.v = in.k;
      const Inputs<float> plain = in;
      for (std::vector<float>* x : {&in.k, &in.v})
        round_to(dtype, static_cast<int64_t>(x->size()), x->data());
      CHECK(!same_bits(in.k, plain.k));
      std::vector<float> whole(in.q.size());
      attention<float>(s, view(f), all_queries(f), in.q.data(), in.k.data(), in.v.data(),
                       whole.data(), nullptr);
      s.cache_dtype = dtype;
      CHECK(2 * temper::kernels::page_bytes(s) == all);
      for_each_target([&] { CHECK(same_bits(through_pages(s, in, n, draws), whole)); });
      s.cache_dtype = CacheDtype::kFloat32;
    }
}

TEST_CASE("pages of keys that are the values hold each number once") {
  const AttentionShape latents{128, 1, 576, 0.1, 0, 0, CacheDtype::kFloat32, true};
  const int64_t numbers = 576 * temper::kernels::page_tokens();
  CHECK(temper::kernels::page_bytes(latents) == 4 * numbers);
  AttentionShape both = latents, half = latents;
  both.values_in_keys = false;
  half.cache_dtype = CacheDtype::kBFloat16;
  CHECK(temper::kernels::page_bytes(both) == 8 * numbers);
  CHECK(temper::kernels::page_bytes(half) == 2 * numbers);
}

TEST_CASE(
    "a sequence gives the same bits alone, packed with others, and as a child of its prefix") {
  uint32_t seed = 300;
  for (const AttentionShape& s : shapes()) {
    Draws draws(++seed);
    CAPTURE(seed);
    const int64_t wide = s.num_heads * s.head_dim, narrow = s.num_kv_heads * s.head_dim;
    const int64_t before = draws.between(1, 45), prefix = draws.between(1, 45),
                  first = draws.between(1, 30), second = draws.between(1, 30);
    Forest packed;
    packed.add_root(blank(before));
    const int64_t prompt = packed.add_root(blank(prefix));
    packed.add_child(prompt, blank(first));
    packed.add_child(prompt, blank(second));
    const Inputs<float> in = draw_inputs(draws, s, packed.num_tokens());
    const Outputs<float> all = run(s, packed, in);

    const int64_t starts[] = {before + prefix, before + prefix + first},
                  lengths[] = {first, second};
    for (int child = 0; child < 2; ++child) {
      Forest alone;
      alone.add_root(blank(prefix + lengths[child]));
      const auto joined = [&](const std::vector<float>& x, int64_t width) {
        std::vector<float> y = rows(x, width, before, before + prefix);
        const std::vector<float> tail =
            rows(x, width, starts[child], starts[child] + lengths[child]);
        y.insert(y.end(), tail.begin(), tail.end());
        return y;
      };
      const Outputs<float> one = run<float>(
          s, alone,
          {joined(in.q, wide), joined(in.k, narrow), joined(in.v, narrow), joined(in.dout, wide)});
      CHECK(same_bits(one.out, joined(all.out, wide)));
      CHECK(same_bits(one.lse, joined(all.lse, s.num_heads)));
    }
  }
}
