// Keys and values of sequences being sampled, in pages (Kwon et al., arXiv 2309.06180): a page holds some consecutive
// positions of one sequence in every layer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "temper/models/model.h"

namespace temper::generate {

class PageCache {
 public:
  // Throws RunError when max_pages pages cannot be had.
  PageCache(models::CausalLM& model, int64_t max_pages);

  // A sequence's pages. Freed with it.
  class Sequence {
   public:
    explicit Sequence(PageCache& cache) : cache_(&cache) {}
    ~Sequence();
    Sequence(const Sequence&) = delete;
    Sequence& operator=(const Sequence&) = delete;

    // Room for `tokens` positions. Throws RunError when no page is left.
    void reserve(int64_t tokens);
    // Begins as the first `tokens` positions of another: whole pages are shared, the last, partial one is copied.
    void fork(const Sequence& from, int64_t tokens);

   private:
    friend class PageCache;
    friend class BatchRows;
    PageCache* cache_;
    std::vector<int64_t> pages_;
    std::vector<std::vector<float*>> layers_;  // [layer][page]: what attention walks
    void append(int64_t page);
  };

  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t page_bytes() const { return num_layers_ * page_floats_ * static_cast<int64_t>(sizeof(float)); }
  static int64_t pages_for(int64_t tokens);

 private:
  friend class Sequence;
  float* page(int64_t layer, int64_t index);
  int64_t take();
  void release(int64_t page);

  int64_t num_layers_, page_floats_;
  std::vector<at::Tensor> chunks_;  // pages are allocated as they are needed, a chunk at a time
  std::vector<int64_t> free_;
  std::vector<int32_t> references_;
  int64_t max_pages_;
};

// The rows of one batch over cached sequences.
class BatchRows : public nn::CacheRows {
 public:
  void add(const PageCache::Sequence& sequence, int64_t tokens) { rows_.insert(rows_.end(), static_cast<size_t>(tokens), &sequence); }
  ops::CachedRows rows(int64_t layer) const override;

 private:
  std::vector<const PageCache::Sequence*> rows_;
};

}  // namespace temper::generate
