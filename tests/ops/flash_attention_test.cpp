// Attention by flash kernels: the calls that the aten backend makes of LibTorch's, computed here by
// flash_kernels.h, against the native backend. That the kernels themselves do what these do is not
// shown here: they run on CUDA alone.
#include "temper/ops/aten/flash_attention.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <limits>

#include "temper/ops/aten/kv_store.h"
#include "tests/ops/attention_runs.h"
#include "tests/ops/flash_kernels.h"

TORCH_LIBRARY_IMPL(aten, CPU, m) { temper::flash::add_kernels(m); }

namespace temper::ops::backends {
namespace {

// While it lives, the processor is asked for flash attention. Counts calls.
class FlashOnProcessor {
 public:
  explicit FlashOnProcessor(bool rounds = true) {
    aten_impl::ask_for_flash_attention(at::kCPU, true);
    for (const int64_t head_dim : {8, 16, 64})  // a first question is a call
      CHECK(aten_impl::has_flash_attention(at::kCPU, head_dim));
    flash::rounds = rounds;
    forward_ = flash::calls().forward;
    backward_ = flash::calls().backward;
    paged_ = flash::calls().paged;
  }
  ~FlashOnProcessor() {
    flash::rounds = true;
    aten_impl::ask_for_flash_attention(at::kCPU, false);
  }
  int64_t forward() const { return flash::calls().forward - forward_; }
  int64_t backward() const { return flash::calls().backward - backward_; }
  int64_t paged() const { return flash::calls().paged - paged_; }

 private:
  int64_t forward_, backward_, paged_;
};

AttentionSpec fast(AttentionSpec s) {
  s.arithmetic = Arithmetic::kFast;
  return s;
}

at::Tensor to_bfloat16_values(const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); }

// Heads whose rounding to bfloat16 changes nothing: no norms, no rotation.
Heads rounded_heads(const AttentionSpec& spec, int64_t n) {
  Heads h = heads_of(spec, false, n, at::kFloat);
  for (at::Tensor* x : {&h.q, &h.k, &h.v, &h.dout}) *x = to_bfloat16_values(*x);
  return h;
}
RotaryTable no_rotation(int64_t positions, int64_t head_dim) {
  return {at::ones({positions, head_dim / 2}), at::zeros({positions, head_dim / 2})};
}

Tensors attended_unrotated(const Backend& backend, const Heads& h, const Forest& forest) {
  const RotaryTable table = no_rotation(forest.num_tokens(), h.spec.head_dim);
  const AttentionResult result = backend.attention(h.spec, table, forest, 0, h.q, h.k, h.v);
  const AttentionGradients d =
      backend.attention_backward(h.spec, table, forest, 0, h.q, h.k, h.v, result, h.dout);
  return {result.out, result.log_sum_exp, d.q, d.k, d.v};
}

// Nodes of the forest by depth, chains contracted: the parts of its attention.
int64_t parts_of(size_t forest) {
  constexpr int64_t kParts[] = {1, 1, 2, 1, 4, 3};
  return kParts[forest];
}

}  // namespace

TEST_CASE("flash: attention over forests of every shape, and its gradients") {
  for (size_t i = 0; i < kForests.size(); ++i) {
    CAPTURE(i);
    const Forest forest = forest_of(kForests[i]);
    for (const AttentionSpec& s :
         {shape(4, 4, 8), shape(6, 2, 16), shape(4, 1, 64), with_sinks(shape(4, 2, 8))}) {
      CAPTURE(s.num_heads);
      const Heads h = rounded_heads(fast(s), forest.num_tokens());
      const Tensors expected = attended_unrotated(native_backend(), h, forest);
      {
        // Sums of parts in float32: as near as padded products come. Gradients read an output that
        // was rounded.
        const FlashOnProcessor flash(/*rounds=*/false);
        const Tensors found = attended_unrotated(aten_backend(), h, forest);
        CHECK(flash.forward() == parts_of(i));
        CHECK(flash.backward() == parts_of(i));
        const double least = forest.num_tokens() == 1 ? 1 : 0;
        for (size_t n = 0; n < found.size(); ++n) {
          CAPTURE(n);
          CHECK(error(found[n], expected[n], least) < (n < 2 ? 1e-5 : 4e-3));
        }
      }
      const FlashOnProcessor flash;
      const Tensors found = attended_unrotated(aten_backend(), h, forest);
      const double least = forest.num_tokens() == 1 ? 1 : 0;
      for (size_t n = 0; n < found.size(); ++n) {
        CAPTURE(n);
        CHECK(error(found[n], expected[n], least) < 2e-2);
      }
    }
  }
}

TEST_CASE("flash: queries in ranges give the rows of all, and gradients that add up") {
  for (const Segments& segments : kForests) {
    const Forest forest = forest_of(segments);
    const int64_t n = forest.num_tokens();
    const Heads h = rounded_heads(fast(shape(4, 2, 8)), n);
    const RotaryTable table = no_rotation(n, 8);
    const FlashOnProcessor flash(/*rounds=*/false);
    const Tensors expected = attended_unrotated(aten_backend(), h, forest);
    Tensors rows[3], sums{at::zeros_like(h.k), at::zeros_like(h.v)};
    for (int64_t first = 0; first < n; first += 13) {
      const int64_t count = std::min<int64_t>(13, n - first);
      const at::Tensor q = h.q.narrow(0, first, count), dout = h.dout.narrow(0, first, count);
      const AttentionResult result =
          aten_backend().attention(h.spec, table, forest, first, q, h.k, h.v);
      const AttentionGradients d = aten_backend().attention_backward(h.spec, table, forest, first,
                                                                     q, h.k, h.v, result, dout);
      rows[0].push_back(result.out);
      rows[1].push_back(result.log_sum_exp);
      rows[2].push_back(d.q);
      sums[0] += d.k;
      sums[1] += d.v;
    }
    const double least = n == 1 ? 1 : 0;
    for (size_t i = 0; i < 3; ++i) CHECK(error(at::cat(rows[i]), expected[i], least) < 1e-5);
    for (size_t i = 0; i < 2; ++i) CHECK(error(sums[i], expected[3 + i], least) < 4e-3);
  }
}

TEST_CASE("flash: with norms, rotation and values that are rounded") {
  const Forest forest = forest_of(kForests[4]);
  for (const CacheDtype cache : {CacheDtype::kFloat32, CacheDtype::kBFloat16}) {
    const Heads h =
        heads_of(fast(shape(6, 2, 16, 0, 0, cache)), true, forest.num_tokens(), at::kFloat);
    const Tensors expected = attended(native_backend(), h, forest);
    const FlashOnProcessor flash;
    const Tensors found = attended(aten_backend(), h, forest);
    CHECK(flash.forward() == 4);
    for (size_t n = 0; n < found.size(); ++n) {
      CAPTURE(n);
      CHECK(error(found[n], expected[n]) < 4e-2);
    }
  }
}

TEST_CASE(
    "flash: a window cuts the first part, and makes later ones that it cuts padded products") {
  const Forest forest = forest_of(kForests[4]);  // paths of up to 24 tokens
  const auto check_window = [&](int64_t window, int64_t flash_parts) {
    CAPTURE(window);
    const Heads h = rounded_heads(fast(shape(4, 2, 8, 0, window)), forest.num_tokens());
    const Tensors expected = attended_unrotated(native_backend(), h, forest);
    const FlashOnProcessor flash(/*rounds=*/false);
    const Tensors found = attended_unrotated(aten_backend(), h, forest);
    CHECK(flash.forward() == flash_parts);
    CHECK(flash.backward() == flash_parts);
    for (size_t n = 0; n < found.size(); ++n) {
      CAPTURE(n);
      CHECK(error(found[n], expected[n], window == 1 ? 1 : 0) < (n < 2 ? 1e-5 : 4e-3));
    }
  };
  for (const int64_t window : {1, 2, 7}) check_window(window, 1);
  // A part's keys begin where its node does: the deeper it is, the nearer its queries are.
  check_window(10, 1);
  check_window(11, 2);
  check_window(15, 3);
  check_window(23, 3);
  check_window(24, 4);
}

TEST_CASE("flash: what the kernels do not compute, or may not round, is as without them") {
  const Forest forest = forest_of(kForests[4]);
  std::vector<AttentionSpec> specs{
      shape(4, 2, 8),           // exact
      fast(shape(4, 2, 8, 3)),  // soft cap
      fast(shape(4, 2, 12)),    // head_dim
      fast(shape(2, 1, 264)),   // too large a one
      fast(shape(4, 2, 8, 0, 0, CacheDtype::kFloat16)),
  };
  for (const AttentionSpec& s : specs) {
    CAPTURE(s.head_dim);
    const Heads h = heads_of(s, false, forest.num_tokens(), at::kFloat);
    const Tensors expected = attended(aten_backend(), h, forest);
    const FlashOnProcessor flash;
    const Tensors found = attended(aten_backend(), h, forest);
    CHECK(flash.forward() == 0);
    for (size_t n = 0; n < found.size(); ++n) CHECK(at::equal(found[n], expected[n]));
  }
  const Heads h = heads_of(fast(shape(4, 2, 8)), false, forest.num_tokens(), at::kDouble);
  const FlashOnProcessor flash;
  attended(aten_backend(), h, forest);
  CHECK(flash.forward() == 0);
}

TEST_CASE("flash: a device that was not asked for it, or has no kernels, has none") {
  CHECK(!aten_impl::has_flash_attention(at::kCPU, 8));
  aten_impl::ask_for_flash_attention(at::kMeta, true);
  CHECK(!aten_impl::has_flash_attention(at::kCPU, 8));
  aten_impl::ask_for_flash_attention(at::kMeta, false);
  const FlashOnProcessor flash;
  CHECK(!aten_impl::has_flash_attention(at::kCPU, 20));  // the call refuses it
}

TEST_CASE("flash: pages of a cache, shared and copied, in chunks, single rows and drafts") {
  for (const int64_t window : {0, 19, 300}) {
    CAPTURE(window);
    const FlashOnProcessor flash(/*rounds=*/false);
    const AttentionSpec spec = with_sinks(fast(shape(4, 2, 8, 0, window, CacheDtype::kBFloat16)));
    const std::vector layers(2, spec);
    const auto store = aten_backend().make_store(layers, at::Device(at::kCPU));
    CHECK(store->page_tokens() == 256);
    CHECK(store->page_bytes() == aten_backend().cache_page(layers, at::Device(at::kCPU)).bytes);
    // A prompt that two sequences share: two whole pages, and a copy of the third.
    const int64_t n = 2 * store->page_tokens() + 5;
    const Forest forest = forest_of({{-1, n}, {0, 30}, {0, 20}, {-1, 50}});
    const int64_t of_b = n + 30, of_c = n + 50;  // first rows
    const Heads h = rounded_heads(spec, forest.num_tokens());
    const RotaryTable table = no_rotation(n + 64, 8);
    store->grow(KvStore::kPagesOfChunk, 2 * KvStore::kPagesOfChunk);
    // What pages held before does not show.
    auto& of_store = static_cast<aten_impl::AtenKvStore&>(*store);
    for (at::Tensor x : {of_store.keys(1), of_store.values(1)})
      x.fill_(std::numeric_limits<float>::quiet_NaN());
    CachedRun run{*store, h, table, at::zeros_like(h.q)};
    const std::vector<int64_t> a{0, 1, 2}, b{0, 1, 9}, c{20};
    run.run({{a, range(0, 25), 0}, {c, range(of_c, of_c + 3), 0}}, 1);
    run.run({{a, range(25, n), 25}, {c, range(of_c + 3, of_c + 50), 3}}, 1);
    store->copy_page(2, 9);
    store->grow(2 * KvStore::kPagesOfChunk, 2 * KvStore::kPagesOfChunk);
    run.run({{a, range(n, n + 23), n}, {b, range(of_b, of_b + 1), n}}, 1);
    for (int64_t i = 0; i < 7; ++i)
      run.run({{b, {of_b + 1 + i}, n + 1 + i}, {a, {n + 23 + i}, n + 23 + i}}, 1);
    run.run({{b, range(of_b + 8, of_b + 20), n + 8}}, 1);
    CHECK(flash.paged() == 11);
    const at::Tensor expected =
        native_backend().attention(h.spec, table, forest, 0, h.q, h.k, h.v).out;
    CHECK(error(run.out, expected) < 1e-5);
  }
}

TEST_CASE("flash: layers that the kernels cannot compute gather the same pages") {
  const FlashOnProcessor flash(/*rounds=*/false);
  const AttentionSpec spec = fast(shape(4, 2, 8, 0, 0, CacheDtype::kBFloat16));
  const auto store = aten_backend().make_store({&spec, 1}, at::Device(at::kCPU));
  store->grow(2, 2);
  const Forest forest = forest_of({{-1, 300}});
  Heads h = rounded_heads(spec, 300);
  h.spec.soft_cap = 3;
  const RotaryTable table = no_rotation(300, 8);
  CachedRun run{*store, h, table, at::zeros_like(h.q)};
  run.run({{{1, 0}, range(0, 270), 0}}, 0);
  run.run({{{1, 0}, range(270, 300), 270}}, 0);
  CHECK(flash.forward() == 0);
  CHECK(error(run.out, native_backend().attention(h.spec, table, forest, 0, h.q, h.k, h.v).out) <
        1e-5);
}

TEST_CASE("flash: layers that its kernels cannot read keep small pages") {
  const FlashOnProcessor flash;
  const auto page_tokens = [](const std::vector<AttentionSpec>& layers) {
    return aten_backend().cache_page(layers, at::Device(at::kCPU)).tokens;
  };
  const AttentionSpec flash_layer = fast(shape(4, 2, 8, 0, 0, CacheDtype::kBFloat16));
  CHECK(page_tokens({flash_layer}) == 256);
  CHECK(page_tokens({fast(shape(4, 2, 8))}) == 16);
  CHECK(page_tokens({fast(shape(4, 2, 8, 0, 0, CacheDtype::kFloat16))}) == 16);
  CHECK(page_tokens({shape(4, 2, 8, 0, 0, CacheDtype::kBFloat16)}) == 16);
  const AttentionSpec capped = fast(shape(4, 2, 8, 3, 0, CacheDtype::kBFloat16));
  CHECK(page_tokens({capped}) == 16);
  // One layer that flash kernels cannot compute decides for all; one without keys does not count.
  CHECK(page_tokens({flash_layer, capped}) == 16);
  AttentionSpec without_keys = capped;
  without_keys.num_kv_heads = 0;
  CHECK(page_tokens({flash_layer, without_keys}) == 256);
}

}  // namespace temper::ops::backends
