// Keys and values in pages of two tensors a layer, or one where values are in keys.
#pragma once

#include <span>
#include <vector>

#include "temper/ops/kv_store.h"

namespace temper::ops::aten_impl {

// A page is what flash kernels read where they may compute all such layers, and else small:
// sequences share whole pages alone.
constexpr int64_t kPageTokens = 16, kFlashPageTokens = 256;
CachePage page_of(std::span<const AttentionSpec> layers, at::Device device);

class AtenKvStore : public KvStore {
 public:
  // Of at least one layer.
  AtenKvStore(std::span<const AttentionSpec> layers, at::Device device);
  int64_t page_tokens() const override { return page_.tokens; }
  int64_t page_bytes() const override { return page_.bytes; }
  void grow(int64_t count, int64_t most) override;
  void clear() override;
  void copy_page(int64_t from, int64_t to) override;
  std::unique_ptr<KvPass> pass(std::span<const CachedSequence> sequences,
                               const Forest& forest) const override;

  // [pages * page_tokens(), num_kv_heads, head_dim] of the layer, in the cache's type; one tensor
  // where values are in keys.
  at::Tensor keys(int64_t layer) const { return keys_[static_cast<size_t>(layer)]; }
  at::Tensor values(int64_t layer) const { return values_[static_cast<size_t>(layer)]; }
  at::Device device() const { return options_.device(); }

 private:
  struct Heads {
    int64_t number, dim;
    bool values_in_keys;
  };
  at::Tensor empty(const Heads& heads, int64_t pages) const;

  std::vector<Heads> heads_;  // by layer
  CachePage page_;
  int64_t pages_ = 0;
  at::TensorOptions options_;
  std::vector<at::Tensor> keys_, values_;
};

}  // namespace temper::ops::aten_impl
