// Attention within open rows of a forest (ExternalRows::open): both ways, on both backends.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "temper/ops/native/kernels/attention/reference_attention.h"
#include "tests/ops/attention.h"
#include "tests/ops/attention_runs.h"

namespace temper::ops::backends {
namespace {

struct OpenRun {
  int64_t begin, count;
};
std::vector<ExternalRows> open_rows(const std::vector<OpenRun>& runs) {
  std::vector<ExternalRows> rows;
  for (const auto& [begin, count] : runs) {
    ExternalRows& r = rows.emplace_back();
    r.begin = begin;
    r.count = count;
    r.features = at::zeros({count, 1});
    r.digest = "a";
    r.open = true;
  }
  return rows;
}

// Spans at the ends of segments and in them, over pages and tiles, beside segments without any.
Forest open_forest() {
  Forest f;
  const auto tokens = [](int64_t n) { return std::vector<int32_t>(static_cast<size_t>(n)); };
  f.add_root(tokens(9));
  const int64_t top = f.add_root(tokens(150), 0, open_rows({{0, 3}, {20, 70}, {90, 12}}));
  const int64_t child = f.add_child(top, tokens(40), open_rows({{0, 17}, {30, 10}}));
  f.add_child(child, tokens(5));
  f.add_child(child, tokens(7), open_rows({{2, 1}, {3, 4}}));
  f.add_child(top, tokens(4));
  f.add_root(tokens(33), 0, open_rows({{0, 33}}));
  return f;
}

std::vector<AttentionSpec> open_shapes() {
  return {shape(4, 4, 8),        shape(6, 2, 8, 5),     shape(4, 1, 64, 0, 7),
          shape(2, 2, 8, 3, 20), shape(4, 2, 16, 2, 2), with_sinks(shape(4, 2, 8, 0, 30))};
}

}  // namespace

TEST_CASE("open rows see one another, and text before and behind them sees what it saw") {
  const Forest f = open_forest();
  const AttentionSpec s = shape(2, 1, 8, 0, 11);
  const Heads h = heads_of(s, false, f.num_tokens(), at::kDouble);
  const at::Tensor q = h.q.view({-1, 2, 8}), k = h.k.view({-1, 8}), v = h.v.view({-1, 8});
  const RotaryTable none;
  const at::Tensor out = native_backend().attention(s, none, f, 0, h.q, h.k, h.v).out;
  const auto expect = [&](int64_t token, int64_t from, int64_t end) {
    CAPTURE(token);
    const at::Tensor p = at::softmax(at::mv(k.slice(0, from, end), q[token][1]) * s.scale, 0);
    const at::Tensor expected = at::mv(v.slice(0, from, end).t(), p);
    CHECK(error(out.view({-1, 2, 8})[token][1], expected) < 1e-12);
  };
  const int64_t top = 9;  // its first token
  expect(top + 19, top + 9, top + 20);
  expect(top + 20, top + 10, top + 90);
  expect(top + 60, top + 50, top + 90);
  expect(top + 89, top + 79, top + 90);
  expect(top + 90, top + 80, top + 102);
  expect(top + 102, top + 92, top + 103);
  // The child's span begins where its parent ends.
  expect(top + 150, top + 140, top + 167);
  expect(top + 167, top + 157, top + 168);
}

TEST_CASE("open rows: the native kernels give the bits of their definition") {
  const Forest f = open_forest();
  for (const AttentionSpec& s : open_shapes()) {
    const kernels::AttentionShape shape{s.num_heads, s.num_kv_heads, s.head_dim, s.scale,
                                        s.soft_cap,  s.window,       {},         false};
    const Heads h = heads_of(s, false, f.num_tokens(), at::kFloat);
    const auto run = [&](auto forward, auto backward) {
      Tensors r{at::empty_like(h.q), at::empty({f.num_tokens(), s.num_heads}), at::empty_like(h.q),
                at::empty_like(h.k), at::empty_like(h.v)};
      const auto in = [](const at::Tensor& x) { return x.const_data_ptr<float>(); };
      const auto to = [](const at::Tensor& x) { return x.mutable_data_ptr<float>(); };
      const kernels::QueryRange all = kernels::all_queries(f);
      forward(shape, kernels::view(f), all, in(h.q), in(h.k), in(h.v), to(r[0]), to(r[1]));
      backward(shape, kernels::view(f), all, in(h.q), in(h.k), in(h.v), in(r[0]), in(r[1]),
               in(h.dout), to(r[2]), to(r[3]), to(r[4]));
      return r;
    };
    const Tensors found = run([](auto&&... x) { kernels::attention<float>(x...); },
                              [](auto&&... x) { kernels::attention_backward<float>(x...); });
    const Tensors expected =
        run([](auto&&... x) { kernels::reference_attention<float, kernels::FloatMath>(x...); },
            [](auto&&... x) {
              kernels::reference_attention_backward<float, kernels::FloatMath>(x...);
            });
    for (size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], expected[i]));
  }
}

TEST_CASE("aten: open rows and their gradients") {
  const Forest f = open_forest();
  for (AttentionSpec s : open_shapes())
    for (const bool causal : {false, true})
      each_type([&](at::ScalarType type) {
        s.causal = causal;
        const Heads h = heads_of(s, true, f.num_tokens(), type);
        compare("attention", [&](const Backend& backend) { return attended(backend, h, f); });
      });
}

TEST_CASE("open rows: a pass that is causal sees nothing behind a token") {
  const Forest f = open_forest();
  Forest plain = f;
  plain.open.clear();
  plain.derived = nullptr;
  for (const Backend* backend : {&native_backend(), &aten_backend()}) {
    AttentionSpec s = shape(4, 2, 8, 0, 13);
    const Heads open = heads_of(s, false, f.num_tokens(), at::kFloat);
    s.causal = true;
    const Heads causal = heads_of(s, false, f.num_tokens(), at::kFloat);
    const at::Tensor expected = attended(*backend, open, plain)[0];
    CHECK(at::equal(attended(*backend, causal, f)[0], expected));
    CHECK(!at::equal(attended(*backend, open, f)[0], expected));
  }
}

TEST_CASE("open rows in a cache give attention over the whole sequence") {
  for (const Backend* backend : {&native_backend(), &aten_backend()})
    for (const CacheDtype cache : {CacheDtype::kFloat32, CacheDtype::kBFloat16})
      for (const int64_t window : {0, 19}) {
        const AttentionSpec spec = shape(4, 2, 8, 0, window, cache);
        const std::vector layers(1, spec);
        const auto store = backend->make_store(layers, at::Device(at::kCPU));
        store->grow(KvStore::kPagesOfChunk, KvStore::kPagesOfChunk);
        Forest f;
        f.add_root(std::vector<int32_t>(120), 0, open_rows({{5, 90}, {97, 4}}));
        const Heads h = heads_of(spec, true, f.num_tokens(), at::kFloat);
        const RotaryTable table = rotary(130, 8, at::kFloat);
        CachedRun run{*store, h, table, at::zeros_like(h.q)};
        const std::vector<int64_t> pages{3, 5, 4, 9, 8, 7, 10, 11};
        run.run({{pages, range(0, 3), 0}}, 0);
        run.run({{pages, range(3, 95), 3, open_rows({{2, 90}})}}, 0);
        run.run({{pages, range(95, 110), 95, open_rows({{2, 4}})}}, 0);
        for (int64_t i = 110; i < 120; ++i) run.run({{pages, {i}, i}}, 0);
        const at::Tensor expected =
            native_backend().attention(h.spec, table, f, 0, h.q, h.k, h.v).out;
        if (backend == &native_backend()) CHECK(at::equal(run.out, expected));
        check_close(run.out, expected, backend->name());
        // A span that goes on behind its pass.
        Forest cut;
        cut.add_root(std::vector<int32_t>(6), 0, open_rows({{2, 4}}));
        cut.open.back().end = 7;
        const std::vector<CachedSequence> sequences{{pages, 0, 6}};
        const auto pass = store->pass(sequences, cut);
        const auto some = [](const at::Tensor& x) { return x.narrow(0, 0, 6); };
        CHECK_THROWS_AS(pass->attend(0, spec, table, some(h.q), some(h.k), some(h.v)), RunError);
      }
}

TEST_CASE("rows of a grid have rotary positions of three axes, and what follows is shifted") {
  const auto grid = [](int64_t begin, int64_t rows, int64_t columns, int64_t first, int64_t count) {
    ExternalRows r{begin, count, at::zeros({rows * columns, 1}), first, "a"};
    r.grid_rows = rows;
    r.grid_columns = columns;
    return r;
  };
  using Axes = std::array<int32_t, 3>;
  Forest f;
  f.add_root(std::vector<int32_t>(2));
  CHECK(f.rotation.empty());
  const std::vector<ExternalRows> rows{grid(1, 2, 3, 0, 6), grid(8, 4, 1, 0, 4)};
  const int64_t top = f.add_root(std::vector<int32_t>(13), 0, rows);
  f.add_child(top, std::vector<int32_t>(1));
  const std::vector<Axes> expected{{0, 0, 0}, {1, 1, 1},               // first root
                                   {0, 0, 0},                          // text
                                   {1, 1, 1}, {1, 1, 2},   {1, 1, 3},  // 2 rows, 3 columns
                                   {1, 2, 1}, {1, 2, 2},   {1, 2, 3}, {4, 4, 4},  // text
                                   {5, 5, 5}, {5, 6, 5},   {5, 7, 5}, {5, 8, 5},  // 4 rows
                                   {9, 9, 9}, {10, 10, 10}};
  CHECK((f.rotation == expected));
  CHECK(rotation_shift(rows, 13) == -3);
  // Cut at any token the parts have the whole's positions.
  for (int64_t cut = 1; cut < 13; ++cut) {
    Forest parts;
    parts.add_root(std::vector<int32_t>(static_cast<size_t>(cut)), 0, rows_within(rows, 0, cut));
    parts.add_root(std::vector<int32_t>(static_cast<size_t>(13 - cut)), cut,
                   rows_within(rows, cut, 13 - cut), rotation_shift(rows, cut));
    for (int64_t t = 0; t < 13; ++t) {
      const Axes plain{static_cast<int32_t>(t), static_cast<int32_t>(t), static_cast<int32_t>(t)};
      const auto at = static_cast<size_t>(t);
      CHECK(((parts.rotation.empty() ? plain : parts.rotation[at]) == expected[at + 2]));
    }
  }
  const auto refused = [&](ExternalRows r) {
    CHECK_THROWS_AS(check_rows(std::vector{r}, 100), RunError);
  };
  refused(grid(0, 2, 3, 0, 7));
  refused(grid(0, 0, 3, 0, 1));
  ExternalRows huge = grid(0, 2, 3, 0, 1);
  huge.grid_rows = huge.grid_columns = int64_t{1} << 40;
  refused(huge);
}

}  // namespace temper::ops::backends
