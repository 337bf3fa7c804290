// Forest attention and the key-value store, on
// temper/ops/native/kernels/attention/forest_attention.h.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "temper/base/error.h"
#include "temper/ops/native/attention_view.h"
#include "temper/ops/native/head_vectors.h"
#include "temper/ops/native/native.h"

namespace temper::ops {
namespace {

template <class T>
void join_sinks(const AttentionSpec& spec, at::Tensor& out, at::Tensor& lse) {
  if (!spec.sinks.defined()) return;
  kernels::join_sinks<T>(attention_shape(spec), out.size(0), values<T>(spec.sinks),
                         out.mutable_data_ptr<T>(), lse.mutable_data_ptr<T>());
}

// As attention reads them, where `keys` are these.
template <class T>
at::Tensor values_beside(const AttentionSpec& spec, const at::Tensor& keys, const at::Tensor& v) {
  return spec.values_in_keys ? keys : prepare_values<T>(spec, v);
}

constexpr int64_t kPagesOfChunk = KvStore::kPagesOfChunk;

class NativeKvStore;

class NativeKvPass : public KvPass {
 public:
  NativeKvPass(const NativeKvStore& store, std::span<const CachedSequence> sequences,
               const Forest& forest)
      : store_(store),
        sequences_(sequences.begin(), sequences.end()),
        position_(forest.position),
        open_(forest.open) {}
  at::Tensor attend(int64_t layer, const AttentionSpec& spec, const RotaryTable& rotary,
                    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;

 private:
  const NativeKvStore& store_;
  std::vector<CachedSequence> sequences_;
  const std::vector<int64_t>& position_;
  const std::vector<OpenSpan>& open_;
};

// Chunks of pages; a page has its layers side by side.
class NativeKvStore : public KvStore {
 public:
  explicit NativeKvStore(std::span<const AttentionSpec> layers) {
    for (const AttentionSpec& spec : layers) {
      offset_.push_back(page_bytes_);
      page_bytes_ += kernels::page_bytes(attention_shape(spec));
    }
  }
  int64_t page_tokens() const override { return kernels::page_tokens(); }
  int64_t page_bytes() const override { return page_bytes_; }
  void grow(int64_t count, int64_t /*most*/) override {
    check(count <= pages_ || pages_ % kPagesOfChunk == 0, "a key-value store grows by ",
          kPagesOfChunk, " pages until it is full");
    while (pages_ < count) {
      const int64_t more = std::min(kPagesOfChunk, count - pages_);
      chunks_.push_back(at::zeros({more * page_bytes()}, at::kByte));
      pages_ += more;
    }
  }
  void clear() override {
    chunks_.clear();
    pages_ = 0;
  }
  void copy_page(int64_t from, int64_t to) override {
    std::memcpy(page(0, to), page(0, from), static_cast<size_t>(page_bytes()));
  }
  std::unique_ptr<KvPass> pass(std::span<const CachedSequence> sequences,
                               const Forest& forest) const override {
    return std::make_unique<NativeKvPass>(*this, sequences, forest);
  }
  void* page(int64_t layer, int64_t index) const {
    return chunks_[static_cast<size_t>(index / kPagesOfChunk)].mutable_data_ptr<uint8_t>() +
           index % kPagesOfChunk * page_bytes_ + offset_[static_cast<size_t>(layer)];
  }

 private:
  std::vector<int64_t> offset_;  // of each layer in a page
  int64_t page_bytes_ = 0, pages_ = 0;
  std::vector<at::Tensor> chunks_;
};

at::Tensor NativeKvPass::attend(int64_t layer, const AttentionSpec& spec, const RotaryTable& rotary,
                                const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v) const {
  const int64_t n = q.size(0);
  check(static_cast<int64_t>(position_.size()) == n, "cached attention: ", n, " rows and ",
        position_.size(), " positions");
  size_t count = 0;
  for (const CachedSequence& s : sequences_) count += s.pages.size();
  std::vector<void*> pages;
  pages.reserve(count);
  const bool opens = !spec.causal && !open_.empty();
  check(!opens || !spec.values_in_keys, "latent attention has no open spans");
  std::vector<kernels::CachedQuery> queries(static_cast<size_t>(n));
  for (const CachedSequence& s : sequences_) {
    void* const* of_sequence = pages.data() + pages.size();
    for (const int64_t page : s.pages) pages.push_back(store_.page(layer, page));
    for (int64_t row = s.first_row; row < s.first_row + s.rows; ++row) {
      const auto i = static_cast<size_t>(row);
      queries[i] = {of_sequence, position_[i]};
      if (!opens) continue;
      queries[i].open = {open_[i].first, open_[i].end};
      check(open_[i].end <= position_[i] + s.first_row + s.rows - row,
            "cached attention: an open span goes on behind its pass");
    }
  }
  const TableRows rows(rotary, position_);
  const at::Tensor rq = prepare_queries<float>(spec, rotary, rows.all(), q);
  const at::Tensor rk = prepare_keys<float>(spec, rotary, rows.all(), k),
                   rv = values_beside<float>(spec, rk, v);
  at::Tensor out = new_tensor(q.sizes(), q);
  kernels::write_pages(attention_shape(spec), n, queries.data(), values<float>(rk),
                       values<float>(rv));
  at::Tensor lse;
  if (spec.sinks.defined()) lse = at::empty({n, spec.num_heads}, q.options());
  kernels::attention_cached(attention_shape(spec), n, queries.data(), values<float>(rq),
                            out.mutable_data_ptr<float>(),
                            lse.defined() ? lse.mutable_data_ptr<float>() : nullptr);
  join_sinks<float>(spec, out, lse);
  return out;
}

}  // namespace

AttentionResult NativeBackend::attention(const AttentionSpec& spec, const RotaryTable& rotary,
                                         const Forest& forest, int64_t first, const at::Tensor& q,
                                         const at::Tensor& k, const at::Tensor& v) const {
  at::Tensor out = at::empty_like(q), lse = at::empty({q.size(0), spec.num_heads}, q.options());
  dispatch(q, [&](auto zero) {
    using T = decltype(zero);
    const TableRows rows(rotary, forest.position);
    const at::Tensor rq = prepare_queries<T>(spec, rotary, rows.of(first, q), q);
    const at::Tensor rk = prepare_keys<T>(spec, rotary, rows.all(), k),
                     rv = values_beside<T>(spec, rk, v);
    kernels::attention<T>(attention_shape(spec), forest_view(spec, forest),
                          {first, first + q.size(0)}, values<T>(rq), values<T>(rk), values<T>(rv),
                          out.mutable_data_ptr<T>(), lse.mutable_data_ptr<T>());
    join_sinks<T>(spec, out, lse);
  });
  return {out, lse};
}

AttentionGradients NativeBackend::attention_backward(
    const AttentionSpec& spec, const RotaryTable& rotary, const Forest& forest, int64_t first,
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionResult& result,
    const at::Tensor& dout) const {
  const auto zeros = [](const at::Tensor& x) {
    return x.defined() ? at::zeros_like(x) : at::Tensor();
  };
  AttentionGradients d{at::empty_like(q), at::empty_like(k), at::empty_like(k), zeros(spec.q_norm),
                       zeros(spec.k_norm)};
  dispatch(q, [&](auto zero) {
    using T = decltype(zero);
    const TableRows rows(rotary, forest.position);
    const at::Tensor rq = prepare_queries<T>(spec, rotary, rows.of(first, q), q);
    const at::Tensor rk = prepare_keys<T>(spec, rotary, rows.all(), k),
                     rv = values_beside<T>(spec, rk, v);
    kernels::attention_backward<T>(
        attention_shape(spec), forest_view(spec, forest), {first, first + q.size(0)}, values<T>(rq),
        values<T>(rk), values<T>(rv), values<T>(result.out), values<T>(result.log_sum_exp),
        values<T>(dout), d.q.mutable_data_ptr<T>(), d.k.mutable_data_ptr<T>(),
        d.v.mutable_data_ptr<T>());
    if (spec.values_in_keys) {
      d.k = ops::add_scaled(d.k, d.v);
      d.v.reset();
    }
    d.q = prepare_queries_backward<T>(spec, rotary, rows.of(first, q), q, d.q, d.q_norm);
    d.k = prepare_backward<T>(spec, rotary, rows.all(), spec.num_kv_heads, k, spec.k_norm, d.k,
                              d.k_norm);
  });
  return d;
}

std::unique_ptr<KvStore> NativeBackend::make_store(std::span<const AttentionSpec> layers,
                                                   at::Device) const {
  return std::make_unique<NativeKvStore>(layers);
}
CachePage NativeBackend::cache_page(std::span<const AttentionSpec> layers,
                                    at::Device /*device*/) const {
  return {kernels::page_tokens(), NativeKvStore(layers).page_bytes()};
}
// In LibTorch's memory are queries and keys as the kernels read them, values where these are
// rounded, and in the backward pass the gradients of normed queries; what the kernels take
// themselves depends on the forest (kernels::attention_memory).
int64_t NativeBackend::attention_scratch(const AttentionSpec& spec, const PassSize& pass,
                                         at::Device /*device*/) const {
  const bool rounds = spec.cache_dtype != CacheDtype::kFloat32;
  const int64_t queries = (spec.q_norm.defined() ? 2 : 1) * spec.num_heads,
                keys = (rounds ? 2 : 1) * spec.num_kv_heads;
  return 4 * pass.rows * spec.head_dim * (queries + keys);
}

}  // namespace temper::ops
