// Keys and values in pages of two tensors a layer.
#pragma once

#include <vector>

#include "temper/ops/kv_store.h"

namespace temper::ops::aten_impl {

// A page is what flash kernels read where they may compute such layers, and else small: sequences
// share whole pages alone.
constexpr int64_t kPageTokens = 16, kFlashPageTokens = 256;
CachePage page_of(const AttentionSpec& spec, at::Device device);

class AtenKvStore : public KvStore {
 public:
  AtenKvStore(const AttentionSpec& spec, int64_t layers, at::Device device);
  int64_t page_tokens() const override { return page_.tokens; }
  int64_t page_bytes() const override;
  void grow(int64_t count, int64_t most) override;
  void clear() override;
  void copy_page(int64_t from, int64_t to) override;
  std::unique_ptr<const KvPass> pass(std::span<const CachedSequence> sequences,
                                     const std::vector<int64_t>& position) const override;

  // [pages * page_tokens(), num_kv_heads, head_dim], in the cache's type.
  at::Tensor keys(int64_t layer) const { return keys_[static_cast<size_t>(layer)]; }
  at::Tensor values(int64_t layer) const { return values_[static_cast<size_t>(layer)]; }
  at::Device device() const { return options_.device(); }

 private:
  int64_t kv_heads_, head_dim_, pages_ = 0;
  CachePage page_;
  at::TensorOptions options_;
  std::vector<at::Tensor> keys_, values_;
};

}  // namespace temper::ops::aten_impl
