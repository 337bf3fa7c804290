#include "temper/generate/cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "temper/base/error.h"
#include "temper/ops/backend.h"

namespace temper::generate {
namespace {

// What a page has to hold of each layer: nothing of one that attends to another one's keys.
std::vector<ops::AttentionSpec> cached_layers(models::CausalLM& model) {
  std::vector<ops::AttentionSpec> layers;
  for (int64_t i = 0; i < model.num_layers; ++i) {
    layers.push_back(model.attention_spec(i));
    if (model.body().key_layer(i) != i) layers.back().num_kv_heads = 0;
  }
  return layers;
}

}  // namespace

PageCache::PageCache(models::CausalLM& model, int64_t max_bytes)
    : store_(ops::backend_of(model.device()).make_store(cached_layers(model), model.device())),
      max_pages_(max_bytes / page_bytes()),
      tree_(page_tokens()) {}

int64_t PageCache::take() {
  if (free_.empty()) {
    const int64_t first = static_cast<int64_t>(references_.size());
    if (first < max_pages_) {
      const int64_t count = std::min(ops::KvStore::kPagesOfChunk, max_pages_ - first);
      store_->grow(first + count, max_pages_);
      for (int64_t i = count; i-- > 0;) free_.push_back(first + i);
      references_.resize(static_cast<size_t>(first + count), 0);
    } else {
      const int64_t page = tree_.evict();
      check(page >= 0, "the key-value cache is full: ", max_pages_,
            " pages; fewer sequences at once need less");
      release(page);
    }
  }
  const int64_t page = free_.back();
  free_.pop_back();
  references(page) = 1;
  return page;
}

void PageCache::hold(int64_t page) {
  ++references(page);
  if (tree_.contains(page)) tree_.set_in_use(page);
}

void PageCache::release(int64_t page) {
  const int32_t left = --references(page);
  if (left == 0) free_.push_back(page);
  if (left == 1 && tree_.contains(page)) tree_.set_unused(page);
}

void PageCache::forget_prefixes() {
  ++weights_;
  const std::vector<int64_t> known = tree_.pages();
  tree_.clear();
  for (const int64_t page : known) release(page);
}

void PageCache::release_memory() {
  forget_prefixes();
  check(free_.size() == references_.size(), "a sequence still holds pages of the key-value cache");
  store_->clear();
  free_.clear();
  references_.clear();
}

void PageCache::check_invariants(std::span<const PageTable* const> live) const {
  std::vector<int32_t> expected(references_.size(), 0);
  for (const PageTable* table : live)
    for (const int64_t page : table->pages_) ++expected[static_cast<size_t>(page)];
  std::vector<bool> in_use(expected.size());
  for (size_t page = 0; page < expected.size(); ++page) in_use[page] = expected[page] > 0;
  tree_.check_invariants(in_use);
  for (const int64_t page : tree_.pages()) ++expected[static_cast<size_t>(page)];
  for (const int64_t page : free_)
    check(expected[static_cast<size_t>(page)] == 0, "page ", page, " is free and in use");
  for (size_t page = 0; page < references_.size(); ++page)
    check(references_[page] == expected[page], "page ", page, " has ", references_[page],
          " references, ", expected[page], " are known");
  const size_t unused = static_cast<size_t>(std::count(expected.begin(), expected.end(), 0));
  check(free_.size() == unused, free_.size(), " pages are free, ", unused, " are unused");
}

// From the last page on: a page of the prefix tree falls out of use after those that go on from it.
void PageTable::clear() {
  for (; !pages_.empty(); pages_.pop_back()) cache_->release(pages_.back());
}

void PageTable::share(int64_t page) {
  cache_->hold(page);
  pages_.push_back(page);
}

void PageTable::reserve(int64_t tokens) {
  while (static_cast<int64_t>(pages_.size()) < pages_for(tokens, cache_->page_tokens()))
    pages_.push_back(cache_->take());
}

void PageTable::truncate(int64_t tokens) {
  while (static_cast<int64_t>(pages_.size()) > pages_for(tokens, cache_->page_tokens())) {
    cache_->release(pages_.back());
    pages_.pop_back();
  }
}

void PageTable::fork(const PageTable& from, int64_t tokens) {
  root_ = from.root_;
  weights_ = from.weights_;
  const int64_t whole = tokens / cache_->page_tokens();
  for (int64_t i = 0; i < whole; ++i) share(from.pages_[static_cast<size_t>(i)]);
  if (tokens % cache_->page_tokens() == 0) return;
  pages_.push_back(cache_->take());
  cache_->store_->copy_page(from.pages_[static_cast<size_t>(whole)], pages_.back());
}

int64_t PageTable::reuse(std::span<const int32_t> tokens) {
  weights_ = cache_->weights_;
  for (const int64_t page : cache_->tree_.find(root_, tokens.first(tokens.size() - 1))) share(page);
  return static_cast<int64_t>(pages_.size()) * cache_->page_tokens();
}

void PageTable::publish(std::span<const int32_t> tokens) {
  if (weights_ != cache_->weights_) return;  // other weights computed the first of them
  const size_t width = static_cast<size_t>(cache_->page_tokens());
  int64_t parent = root_;
  for (size_t i = 0; (i + 1) * width <= tokens.size(); ++i) {
    const int64_t mine = pages_[i];
    const bool was_known = cache_->tree_.contains(mine);
    const int64_t known = cache_->tree_.insert(parent, tokens.subspan(i * width, width), mine);
    if (known != mine) {  // the same bits: this page goes, that one takes its place
      cache_->hold(known);
      cache_->release(mine);
      pages_[i] = known;
    } else if (!was_known) {
      cache_->hold(mine);  // the tree's own reference
    }
    parent = known;
  }
}

std::unique_ptr<const ops::KvPass> BatchRows::pass(const Forest& forest) const {
  std::vector<ops::CachedSequence> sequences;
  int64_t rows = 0;
  for (const Part& part : parts_) {
    sequences.push_back({part.table->pages_, rows, part.tokens});
    rows += part.tokens;
  }
  check(rows > 0 && rows == forest.num_tokens(), "cached rows: ", rows, " for a batch of ",
        forest.num_tokens());
  return parts_.front().table->cache_->store_->pass(sequences, forest.position);
}

}  // namespace temper::generate
