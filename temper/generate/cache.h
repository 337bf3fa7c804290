// Keys and values of sequences being sampled, in pages (Kwon et al., arXiv 2309.06180): a page
// holds some consecutive positions of one sequence in every layer. Pages of prompts stay known
// after their sequences have gone (prefix_tree.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "temper/generate/prefix_tree.h"
#include "temper/models/model.h"

namespace temper::generate {

class PageCache {
 public:
  // At most max_bytes, in whole pages. Memory is taken as it is needed.
  PageCache(models::CausalLM& model, int64_t max_bytes);

  // A sequence's pages. Freed with it.
  class Sequence {
   public:
    explicit Sequence(PageCache& cache) : cache_(&cache) {}
    ~Sequence();
    Sequence(const Sequence&) = delete;
    Sequence& operator=(const Sequence&) = delete;

    // Room for `tokens` positions. Throws RunError when no page is left.
    void reserve(int64_t tokens);
    // Begins as the first `tokens` positions of another: whole pages are shared, the last, partial
    // one is copied.
    void fork(const Sequence& from, int64_t tokens);
    // Begins with the whole pages that earlier prompts left of these tokens. Returns the positions
    // that are filled: fewer than the tokens, so that one is left to go through the model.
    int64_t reuse(std::span<const int32_t> tokens);
    // The prompt's whole pages are filled: later prompts may begin with them.
    void publish(std::span<const int32_t> tokens) const;

   private:
    friend class PageCache;
    friend class BatchRows;
    void append(int64_t page);
    void share(int64_t page);

    PageCache* cache_;
    std::vector<int64_t> pages_;
    std::vector<std::vector<float*>> layers_;  // [layer][page]: what attention walks
  };

  int64_t max_pages() const { return max_pages_; }
  int64_t page_bytes() const {
    return num_layers_ * page_floats_ * static_cast<int64_t>(sizeof(float));
  }
  static int64_t pages_for(int64_t tokens);

  // Forgets earlier prompts; their weights are not the model's any more, say.
  void forget_prefixes();
  // Gives the memory back. No sequence may be alive.
  void release_memory();
  // Throws RunError unless every page is free or referenced exactly as often as `live` sequences
  // and the tree hold it.
  void check_invariants(std::span<const Sequence* const> live) const;

 private:
  friend class Sequence;
  float* page(int64_t layer, int64_t index);
  int64_t take();
  void release(int64_t page);
  int32_t& references(int64_t page) { return references_[static_cast<size_t>(page)]; }

  int64_t num_layers_, page_floats_, max_pages_;
  std::vector<at::Tensor> chunks_;  // pages are allocated as they are needed, a chunk at a time
  std::vector<int64_t> free_;
  std::vector<int32_t> references_;
  mutable PrefixTree tree_;
};

// The rows of one batch over cached sequences.
class BatchRows : public nn::CacheRows {
 public:
  void add(const PageCache::Sequence& sequence, int64_t tokens) {
    rows_.insert(rows_.end(), static_cast<size_t>(tokens), &sequence);
  }
  ops::CachedRows rows(int64_t layer) const override;

 private:
  std::vector<const PageCache::Sequence*> rows_;
};

}  // namespace temper::generate
