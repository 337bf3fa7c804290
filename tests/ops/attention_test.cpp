// Attention where paths are long, where one cached batch holds many sequences, and where other
// tokens are not numbers.
#include "tests/ops/attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "temper/ops/forest.h"
#include "temper/ops/native/kernels/attention/forest_attention.h"
#include "temper/ops/native/kernels/attention/reference_attention.h"
#include "tests/ops/kernels.h"

using namespace temper::kernels;
using temper::Forest;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Parents before children: {parent, tokens}.
Forest forest_of(const std::vector<std::pair<int64_t, int64_t>>& segments) {
  Forest f;
  for (const auto& [parent, tokens] : segments) {
    const std::vector<int32_t> blank(static_cast<size_t>(tokens));
    parent < 0 ? f.add_root(blank) : f.add_child(parent, blank);
  }
  return f;
}

template <class T>
struct Arrays {
  std::vector<T> q, k, v, dout, out, lse, dq, dk, dv;

  Arrays(const AttentionShape& s, int64_t tokens) {
    const auto wide = static_cast<size_t>(tokens * s.num_heads * s.head_dim),
               narrow = static_cast<size_t>(tokens * s.num_kv_heads * s.head_dim);
    for (auto* x : {&q, &dout, &out, &dq}) x->resize(wide);
    for (auto* x : {&k, &v, &dk, &dv}) x->resize(narrow);
    lse.resize(static_cast<size_t>(tokens * s.num_heads));
  }
  void forward(const AttentionShape& s, const Forest& f) {
    attention<T>(s, view(f), all_queries(f), q.data(), k.data(), v.data(), out.data(), lse.data());
  }
  void backward(const AttentionShape& s, const Forest& f) {
    attention_backward<T>(s, view(f), all_queries(f), q.data(), k.data(), v.data(), out.data(),
                          lse.data(), dout.data(), dq.data(), dk.data(), dv.data());
  }
};

Arrays<float> draw_arrays(Draws& draws, const AttentionShape& s, int64_t tokens) {
  Arrays<float> a(s, tokens);
  for (auto* x : {&a.q, &a.k, &a.v, &a.dout}) *x = draws.floats(static_cast<int64_t>(x->size()));
  return a;
}

// Pages of several sequences in one memory, which holds no number that no token has written.
struct Pages {
  const AttentionShape& shape;
  std::vector<float> memory;
  int64_t used = 0;

  Pages(const AttentionShape& s, int64_t count)
      : shape(s), memory(static_cast<size_t>(count * page_bytes(s) / 4), kNan) {}
  void reserve(std::vector<void*>& pages, int64_t tokens) {
    while (static_cast<int64_t>(pages.size()) * temper::kernels::page_tokens() < tokens)
      pages.push_back(memory.data() + used++ * (page_bytes(shape) / 4));
  }
};

}  // namespace

TEST_CASE("paths of hundreds of tokens give the definition's bits, and float64's gradients") {
  const AttentionShape shapes[] = {
      {4, 1, 32, 0.2}, {3, 3, 17, 0.4, 8.0, 100}, {10, 2, 9, 0.4, 0, 33}, {2, 2, 66, 0.1, 0, 150}};
  const Forest f = forest_of({{-1, 90}, {0, 140}, {1, 1}, {1, 70}, {0, 67}, {-1, 1}, {-1, 201}});
  uint32_t seed = 400;
  for (const AttentionShape& s : shapes) {
    Draws draws(++seed);
    CAPTURE(seed);
    Arrays<float> a = draw_arrays(draws, s, f.num_tokens());
    std::vector<float> out(a.out.size()), lse(a.lse.size());
    reference_attention<float, FloatMath>(s, view(f), all_queries(f), a.q.data(), a.k.data(),
                                          a.v.data(), out.data(), lse.data());
    Arrays<double> exact(s, f.num_tokens());
    exact.q.assign(a.q.begin(), a.q.end());
    exact.k.assign(a.k.begin(), a.k.end());
    exact.v.assign(a.v.begin(), a.v.end());
    exact.dout.assign(a.dout.begin(), a.dout.end());
    exact.forward(s, f);
    exact.backward(s, f);
    std::vector<float> dq, dk, dv;
    for_each_target([&] {
      a.forward(s, f);
      CHECK(same_bits(a.out, out));
      CHECK(same_bits(a.lse, lse));
      a.backward(s, f);
      // A key of these hundreds that was missed or met twice would show at 1e-3.
      CHECK(largest_difference(a.dq, exact.dq) < 5e-5);
      CHECK(largest_difference(a.dk, exact.dk) < 5e-5);
      CHECK(largest_difference(a.dv, exact.dv) < 5e-5);
      if (omp_get_max_threads() == 1) {
        dq = a.dq;
        dk = a.dk;
        dv = a.dv;
      } else {
        CHECK(same_bits(a.dq, dq));
        CHECK(same_bits(a.dk, dk));
        CHECK(same_bits(a.dv, dv));
      }
    });
  }
}

TEST_CASE("a cached batch of many sequences, some on one prompt's pages, gives the forest's bits") {
  const AttentionShape shapes[] = {{4, 2, 64, 0.125},
                                   {5, 1, 24, 0.3, 6.0},
                                   {3, 3, 17, 0.3, 0, 40},
                                   {20, 1, 70, 0.3, 0, 0, CacheDtype::kFloat32, true},
                                   {6, 2, 17, 0.3, 6.0, 40, CacheDtype::kFloat32, true}};
  for_each_target([&] {
    uint32_t seed = 500;
    for (const AttentionShape& s : shapes) {
      Draws draws(++seed);
      CAPTURE(seed);
      // A prompt with more completions than fit a tile, and two sequences of their own.
      const int64_t prompt = 2 * temper::kernels::page_tokens() + 5;
      const std::vector<int64_t> completions{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
      const Forest f = forest_of({{-1, prompt},
                                  {0, 40},
                                  {0, 23},
                                  {0, 1},
                                  {0, 64},
                                  {0, 33},
                                  {0, 7},
                                  {0, 29},
                                  {0, 50},
                                  {0, 12},
                                  {0, 31},
                                  {0, 3},
                                  {0, 45},
                                  {0, 20},
                                  {-1, 90},
                                  {-1, 2}});
      Arrays<float> a = draw_arrays(draws, s, f.num_tokens());
      if (s.values_in_keys) a.v = a.k;
      a.forward(s, f);

      Pages pages(s, 120);
      const int64_t wide = s.num_heads * s.head_dim, narrow = s.num_kv_heads * s.head_dim;
      std::vector<float> cached(a.out.size());
      // What is next in each sequence: tokens [next, end) of the forest.
      struct Sequence {
        int64_t next, end, position;
        std::vector<void*> pages;
      };
      const auto start = [&](int64_t segment) {
        return Sequence{f.segment_start[segment],
                        f.segment_start[segment + 1],
                        f.position[f.segment_start[segment]],
                        {}};
      };
      std::vector<Sequence> sequences{start(0), start(14), start(15)};
      for (Sequence& sequence : sequences)
        pages.reserve(sequence.pages, sequence.end - sequence.next);
      // One batch: some tokens of every sequence, gathered as the sampler gathers them.
      const auto step = [&](int64_t most) {
        std::vector<CachedQuery> rows;
        std::vector<int64_t> token;
        for (Sequence& sequence : sequences)
          for (int64_t i = 0, n = draws.between(1, most); i < n && sequence.next < sequence.end;
               ++i) {
            rows.push_back({sequence.pages.data(), sequence.position++});
            token.push_back(sequence.next++);
          }
        const auto gather = [&](const std::vector<float>& x, int64_t width) {
          std::vector<float> y;
          for (const int64_t t : token)
            y.insert(y.end(), x.begin() + t * width, x.begin() + (t + 1) * width);
          return y;
        };
        const int64_t count = static_cast<int64_t>(rows.size());
        const std::vector<float> q = gather(a.q, wide), k = gather(a.k, narrow),
                                 v = gather(a.v, narrow);
        std::vector<float> out(q.size());
        write_pages(s, count, rows.data(), k.data(), v.data());
        attention_cached(s, count, rows.data(), q.data(), out.data());
        for (int64_t i = 0; i < count; ++i)
          std::copy_n(out.begin() + i * wide, wide, cached.begin() + token[i] * wide);
        return count > 0;
      };
      while (sequences[0].next < sequences[0].end) step(70);

      // The completions share the prompt's two whole pages and copy the third.
      const std::vector<void*> shared(sequences[0].pages.begin(), sequences[0].pages.begin() + 2);
      const void* last = sequences[0].pages[2];
      for (const int64_t segment : completions) {
        Sequence child = start(segment);
        child.pages = shared;
        pages.reserve(child.pages, child.position + child.end - child.next);
        std::memcpy(child.pages[2], last, static_cast<size_t>(page_bytes(s)));
        sequences.push_back(child);
      }
      while (step(3)) continue;
      CHECK(same_bits(cached, a.out));
    }
  });
}

TEST_CASE("tokens off a token's path are never read, even where they are not numbers") {
  const AttentionShape shapes[] = {{4, 2, 18, 0.3}, {6, 1, 33, 0.2, 5.0, 50}};
  const Forest f = forest_of({{-1, 45}, {0, 71}, {1, 9}, {0, 80}, {-1, 66}});
  for_each_target([&] {
    uint32_t seed = 600;
    for (const AttentionShape& s : shapes) {
      Draws draws(++seed);
      CAPTURE(seed);
      const int64_t wide = s.num_heads * s.head_dim, narrow = s.num_kv_heads * s.head_dim;
      Arrays<float> clean = draw_arrays(draws, s, f.num_tokens());
      clean.forward(s, f);
      for (int64_t segment = 0; segment < f.num_segments(); ++segment) {
        const int64_t token =
            draws.between(f.segment_start[segment], f.segment_start[segment + 1] - 1);
        CAPTURE(token);
        const std::vector<int64_t> path = reference_path(view(f), segment, token).tokens;
        Arrays<float> poisoned = clean;
        for (int64_t t = 0; t < f.num_tokens(); ++t) {
          if (std::find(path.begin(), path.end(), t) != path.end()) continue;
          std::fill_n(poisoned.q.begin() + t * wide, wide, kNan);
          std::fill_n(poisoned.k.begin() + t * narrow, narrow, kNan);
          std::fill_n(poisoned.v.begin() + t * narrow, narrow, kNan);
        }
        poisoned.forward(s, f);
        const auto row = [&](const Arrays<float>& a) {
          return std::vector<float>(a.out.begin() + token * wide,
                                    a.out.begin() + (token + 1) * wide);
        };
        CHECK(same_bits(row(poisoned), row(clean)));
      }
    }
  });
}
