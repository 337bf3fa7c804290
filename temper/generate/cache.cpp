#include "temper/generate/cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "temper/base/error.h"

namespace temper::generate {
namespace {
constexpr int64_t kChunkPages = 64;
}

PageCache::PageCache(models::CausalLM& model, int64_t max_bytes)
    : num_layers_(model.num_layers),
      page_floats_(ops::page_floats(model.attention_spec())),
      max_pages_(max_bytes / page_bytes()),
      tree_(ops::page_tokens()) {}

int64_t PageCache::pages_for(int64_t tokens) {
  return (tokens + ops::page_tokens() - 1) / ops::page_tokens();
}

float* PageCache::page(int64_t layer, int64_t index) {
  return chunks_[static_cast<size_t>(index / kChunkPages)].mutable_data_ptr<float>() +
         ((index % kChunkPages) * num_layers_ + layer) * page_floats_;
}

int64_t PageCache::take() {
  if (free_.empty()) {
    const int64_t first = static_cast<int64_t>(references_.size());
    if (first < max_pages_) {
      const int64_t count = std::min(kChunkPages, max_pages_ - first);
      chunks_.push_back(at::zeros({count * num_layers_ * page_floats_}, at::kFloat));
      for (int64_t i = count; i-- > 0;) free_.push_back(first + i);
      references_.resize(static_cast<size_t>(first + count), 0);
    } else {
      const int64_t page = tree_.evict([this](int64_t p) { return references(p) == 1; });
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

void PageCache::release(int64_t page) {
  if (--references(page) == 0) free_.push_back(page);
}

void PageCache::forget_prefixes() {
  for (const int64_t page : tree_.pages()) release(page);
  tree_.clear();
}

void PageCache::release_memory() {
  forget_prefixes();
  check(free_.size() == references_.size(), "a sequence still holds pages of the key-value cache");
  chunks_.clear();
  free_.clear();
  references_.clear();
}

void PageCache::check_invariants(std::span<const Sequence* const> live) const {
  std::vector<int32_t> expected(references_.size(), 0);
  for (const Sequence* sequence : live)
    for (const int64_t page : sequence->pages_) ++expected[static_cast<size_t>(page)];
  for (const int64_t page : tree_.pages()) ++expected[static_cast<size_t>(page)];
  for (const int64_t page : free_)
    check(expected[static_cast<size_t>(page)] == 0, "page ", page, " is free and in use");
  for (size_t page = 0; page < references_.size(); ++page)
    check(references_[page] == expected[page], "page ", page, " has ", references_[page],
          " references, ", expected[page], " are known");
  const size_t unused = static_cast<size_t>(std::count(expected.begin(), expected.end(), 0));
  check(free_.size() == unused, free_.size(), " pages are free, ", unused, " are unused");
}

PageCache::Sequence::~Sequence() {
  for (const int64_t page : pages_) cache_->release(page);
}

void PageCache::Sequence::append(int64_t page) {
  pages_.push_back(page);
  layers_.resize(static_cast<size_t>(cache_->num_layers_));
  for (int64_t layer = 0; layer < cache_->num_layers_; ++layer)
    layers_[static_cast<size_t>(layer)].push_back(cache_->page(layer, page));
}

void PageCache::Sequence::share(int64_t page) {
  ++cache_->references(page);
  append(page);
}

void PageCache::Sequence::reserve(int64_t tokens) {
  while (static_cast<int64_t>(pages_.size()) < pages_for(tokens)) append(cache_->take());
}

void PageCache::Sequence::fork(const Sequence& from, int64_t tokens) {
  const int64_t whole = tokens / ops::page_tokens();
  for (int64_t i = 0; i < whole; ++i) share(from.pages_[static_cast<size_t>(i)]);
  if (tokens % ops::page_tokens() == 0) return;
  append(cache_->take());
  for (auto& layer : layers_) {
    const size_t index = static_cast<size_t>(&layer - layers_.data());
    std::memcpy(layer.back(), from.layers_[index][static_cast<size_t>(whole)],
                static_cast<size_t>(cache_->page_floats_) * sizeof(float));
  }
}

int64_t PageCache::Sequence::reuse(std::span<const int32_t> tokens) {
  for (const int64_t page : cache_->tree_.find(tokens.first(tokens.size() - 1))) share(page);
  return static_cast<int64_t>(pages_.size()) * ops::page_tokens();
}

void PageCache::Sequence::publish(std::span<const int32_t> tokens) const {
  for (const int64_t page : cache_->tree_.insert(tokens, pages_)) ++cache_->references(page);
}

ops::CachedRows BatchRows::rows(int64_t layer) const {
  ops::CachedRows out;
  out.pages.reserve(rows_.size());
  for (const PageCache::Sequence* sequence : rows_)
    out.pages.push_back(sequence->layers_[static_cast<size_t>(layer)].data());
  return out;
}

}  // namespace temper::generate
