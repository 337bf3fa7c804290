// The aten backend's attention, its cache of keys and values and its attention maps against the
// native backend's attention.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <limits>

#include "temper/ops/aten/kv_store.h"
#include "temper/ops/backend.h"
#include "tests/ops/attention_runs.h"

namespace temper::ops::backends {
TEST_CASE("aten: attention over forests of every shape, and its gradients") {
  const AttentionSpec shapes[] = {shape(4, 4, 8),
                                  shape(6, 2, 8, 5),
                                  shape(4, 1, 64, 0, 7),
                                  shape(2, 2, 8, 3, 20),
                                  shape(4, 2, 64, 2, 1),
                                  with_sinks(shape(4, 2, 8)),
                                  with_sinks(shape(6, 2, 8, 5, 7)),
                                  values_in_keys(shape(6, 1, 8)),
                                  values_in_keys(shape(4, 2, 8, 5, 7))};
  for (const Segments& segments : kForests) {
    const Forest forest = forest_of(segments);
    for (const AttentionSpec& s : shapes)
      for (const bool norms : {false, true})
        each_type([&](at::ScalarType type) {
          const Heads h = heads_of(s, norms, forest.num_tokens(), type);
          CAPTURE(segments.size());
          CAPTURE(s.window);
          CAPTURE(s.num_heads);
          // Where a token attends to itself alone the gradients of q and k are 0.
          compare(
              "attention", [&](const Backend& backend) { return attended(backend, h, forest); },
              s.window == 1 || forest.num_tokens() == 1 ? 1 : 0);
        });
  }
}

TEST_CASE("aten: heads rotated in part, in neighbouring pairs or not at all, scaled queries") {
  const Forest forest = forest_of(kForests[4]);
  each_type([&](at::ScalarType type) {
    RotaryTable part = rotary(64, 4, type), pairs = rotary(64, 8, type), none;
    pairs.interleaved = true;
    pairs.query_scale = none.query_scale = random({64}, 8, type).abs() + 0.5;
    RotaryTable both = rotary(64, 4, type);
    both.interleaved = true;
    for (const RotaryTable& table : {part, pairs, both, none})
      for (const bool norms : {false, true})
        for (const bool norm_rotated : {false, true}) {
          Heads h = heads_of(shape(4, 2, 8), norms, forest.num_tokens(), type);
          h.spec.norm_rotated = norm_rotated;
          compare("attention",
                  [&](const Backend& backend) { return attended(backend, h, forest, &table); });
        }
  });
}

TEST_CASE("aten: attention of rows that are cut, in batches that are") {
  const Forest forest =
      forest_of({{-1, 1100}, {-1, 900}, {-1, 700}, {2, 300}, {2, 20}, {2, 120}, {-1, 2}});
  for (const int64_t window : {0, 150}) {
    const Heads h = heads_of(shape(16, 4, 8, 0, window), false, forest.num_tokens(), at::kFloat);
    compare("attention", [&](const Backend& backend) { return attended(backend, h, forest); });
  }
}

TEST_CASE("aten: keys and values are rounded to the cache's type") {
  const Forest forest = forest_of(kForests[4]);
  for (const CacheDtype cache : {CacheDtype::kFloat16, CacheDtype::kBFloat16})
    for (const double range : {1e-7, 1.0, 1e5}) {  // float16: subnormals; beyond the largest
      Heads h = heads_of(shape(4, 2, 8, 0, 0, cache), false, forest.num_tokens(), at::kFloat);
      h.v.mul_(range);
      CAPTURE(range);
      compare("attention", [&](const Backend& backend) { return attended(backend, h, forest); });
    }
}

TEST_CASE("aten: a forest that grew since its last pass is planned again") {
  Forest forest = forest_of({{-1, 6}, {0, 4}});
  for (int i = 0; i < 2; ++i) {
    const Heads h = heads_of(shape(2, 1, 8), false, forest.num_tokens(), at::kDouble);
    compare("attention", [&](const Backend& backend) { return attended(backend, h, forest); });
    forest.add_child(0, std::vector<int32_t>(5));
  }
}

TEST_CASE("aten: a forest that became another one of the same size is planned again") {
  Forest forest = forest_of({{-1, 6}, {0, 4}, {0, 3}});
  const auto check_alike = [&] {
    const Heads h = heads_of(shape(2, 1, 8), false, forest.num_tokens(), at::kDouble);
    compare("attention", [&](const Backend& backend) { return attended(backend, h, forest); });
  };
  check_alike();
  for (const Segments& segments :
       {Segments{{-1, 6}, {0, 4}, {-1, 3}}, Segments{{-1, 6}, {0, 4}, {1, 3}},
        Segments{{-1, 5}, {0, 4}, {0, 4}}}) {
    const Forest other = forest_of(segments);
    forest.position = other.position;
    forest.segment_start = other.segment_start;
    forest.parent = other.parent;
    forest.subtree_end = other.subtree_end;
    check_alike();
  }
}

TEST_CASE("aten: a cache's chunks and single rows give attention over the whole sequence") {
  for (const Backend* backend : {&native_backend(), &aten_backend()})
    for (const CacheDtype cache :
         {CacheDtype::kFloat32, CacheDtype::kFloat16, CacheDtype::kBFloat16})
      for (const auto& [window, in_keys] :
           {std::pair{0, false}, std::pair{19, false}, std::pair{0, true}, std::pair{19, true}}) {
        AttentionSpec spec = shape(4, 2, 8, window > 0 ? 4 : 0, window, cache);
        if (window > 0) spec = with_sinks(spec);
        spec.values_in_keys = in_keys;
        const std::vector layers(2, spec);
        const auto store = backend->make_store(layers, at::Device(at::kCPU));
        CHECK(store->page_bytes() == backend->cache_page(layers, at::Device(at::kCPU)).bytes);
        // A prompt that two sequences share: two whole pages, and a copy of the third.
        const int64_t n = 2 * store->page_tokens() + 5;
        const Forest forest = forest_of({{-1, n}, {0, 30}, {0, 20}, {-1, 50}});
        const int64_t of_b = n + 30, of_c = n + 50;  // first rows
        const Heads h = heads_of(spec, true, forest.num_tokens(), at::kFloat);
        const RotaryTable table = rotary(n + 64, 8, at::kFloat);
        store->grow(KvStore::kPagesOfChunk, 2 * KvStore::kPagesOfChunk);
        CachedRun run{*store, h, table, at::zeros_like(h.q)};
        const std::vector<int64_t> a{0, 1, 2, 3, 4}, b{0, 1, 9, 8, 7}, c{20, 21, 22, 23};
        run.run({{a, range(0, 25), 0}, {c, range(of_c, of_c + 3), 0}}, 1);
        run.run({{a, range(25, n), 25}, {c, range(of_c + 3, of_c + 50), 3}}, 1);
        store->copy_page(2, 9);
        store->grow(2 * KvStore::kPagesOfChunk, 2 * KvStore::kPagesOfChunk);
        run.run({{a, range(n, n + 23), n}, {b, range(of_b, of_b + 1), n}}, 1);
        for (int64_t i = 0; i < 7; ++i)
          run.run({{b, {of_b + 1 + i}, n + 1 + i}, {a, {n + 23 + i}, n + 23 + i}}, 1);
        run.run({{b, range(of_b + 8, of_b + 20), n + 8}}, 1);
        const at::Tensor expected =
            native_backend().attention(h.spec, table, forest, 0, h.q, h.k, h.v).out;
        check_close(run.out, expected, backend->name());
        store->clear();
      }
}

TEST_CASE("aten: a cache takes no more pages than it may have") {
  aten_impl::AtenKvStore store(std::vector{shape(2, 1, 8)}, at::Device(at::kCPU));
  const auto pages = [&](int64_t count) {
    store.grow(count, 150);
    return store.keys(0).size(0) / store.page_tokens();
  };
  CHECK(pages(64) == 64);
  CHECK(pages(65) == 128);  // room for more, so that it is copied few times
  CHECK(pages(128) == 128);
  CHECK(pages(129) == 150);
  CHECK(pages(150) == 150);
}

TEST_CASE("aten: what a page held before does not show") {
  const Heads h = heads_of(shape(2, 1, 8), false, 20, at::kFloat);
  const Forest forest = forest_of({{-1, 20}});
  const RotaryTable table = rotary(64, 8, at::kFloat);
  const auto store = aten_backend().make_store(std::vector{h.spec}, at::Device(at::kCPU));
  store->grow(4, 4);
  Heads broken = heads_of(h.spec, false, 40, at::kFloat);
  broken.k.fill_(std::numeric_limits<float>::quiet_NaN());
  broken.v.fill_(std::numeric_limits<float>::quiet_NaN());
  CachedRun before{*store, broken, table, at::zeros_like(broken.q)};
  before.run({{{1, 2, 3}, range(0, 40), 0}}, 0);
  CachedRun run{*store, h, table, at::zeros_like(h.q)};
  run.run({{{3, 1}, range(0, 20), 0}}, 0);
  check_close(run.out, native_backend().attention(h.spec, table, forest, 0, h.q, h.k, h.v).out,
              "pages");
}

TEST_CASE("aten: head vectors, attention maps and their comparisons") {
  const Forest forest = forest_of({{-1, 9}, {0, 4}, {0, 6}});
  const int64_t n = forest.num_tokens();
  std::vector<int64_t> path = range(0, 9);
  for (int64_t t = 13; t < 17; ++t) path.push_back(t);
  const MapTile tile{13, 4, 9, at::tensor(path, at::kLong)};
  for (const AttentionSpec& s :
       {shape(4, 2, 8), shape(4, 4, 8, 3, 6), with_sinks(shape(4, 2, 8, 0, 6))})
    each_type([&](at::ScalarType type) {
      const Heads h = heads_of(s, true, n, type), other = heads_of(shape(8, 2, 8), false, n, type);
      const RotaryTable table = rotary(32, 8, type);
      const at::Tensor g = random({4}, 8, type), map = random({8, 4}, 9, type);
      compare("maps", [&](const Backend& backend) {
        const auto vectors = [&](const Heads& x) {
          return backend.head_vectors(x.spec, table, forest, x.q, x.k);
        };
        const HeadVectors own = vectors(h), theirs = vectors(other);
        const TileMaps a = backend.maps(h.spec, own, tile, true),
                       b = backend.maps(other.spec, theirs, tile, false);
        const at::Tensor p = a.probability;
        at::Tensor dmap = at::ones_like(map);
        const at::Tensor by_cosine = backend.map_cosine_backward(tile, p.clone(), b.probability, g),
                         by_error = backend.map_squared_error_backward(
                             tile, p.clone(), b.probability.clone(), map, g, dmap);
        HeadVectors d{at::zeros_like(own.q), at::zeros_like(own.k)};
        backend.maps_backward(h.spec, own, tile, a, by_cosine.clone(), d);
        backend.maps_backward(h.spec, own, tile, a, by_error.clone(), d);
        const HeadVectors by_maps{d.q.clone(), d.k.clone()};
        const AttentionGradients to =
            backend.head_vectors_backward(h.spec, table, forest, h.q, h.k, d);
        return Tensors{own.q,
                       own.k,
                       p,
                       b.probability,
                       backend.map_cosine(tile, p, b.probability),
                       backend.map_squared_error(tile, p, b.probability.clone(), map),
                       by_cosine,
                       by_error,
                       dmap,
                       by_maps.q,
                       by_maps.k,
                       to.q,
                       to.k,
                       to.q_norm,
                       to.k_norm};
      });
    });
}

}  // namespace temper::ops::backends
