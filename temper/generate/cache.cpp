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

std::vector<std::vector<int64_t>> carried_sizes(models::CausalLM& model) {
  std::vector<std::vector<int64_t>> sizes;
  for (int64_t i = 0; i < model.num_layers; ++i) sizes.push_back(model.body().state_sizes(i));
  return sizes;
}

}  // namespace

CacheSize cache_size(int64_t max_bytes, const ops::CachePage& page, int64_t state_bytes) {
  // A rank that would get no head has pages of no bytes, until its mesh is refused.
  if (state_bytes == 0) return {max_bytes / std::max<int64_t>(1, page.bytes), CacheSize::kNoStates};
  const int64_t with_pages = state_bytes + pages_for(kTokensOfState, page.tokens) * page.bytes;
  const int64_t states = std::max<int64_t>(2, max_bytes / with_pages);
  const int64_t left = std::max<int64_t>(0, max_bytes - states * state_bytes);
  return {left / std::max<int64_t>(1, page.bytes), states};
}

PageCache::PageCache(models::CausalLM& model, int64_t max_bytes) : PageCache(model, CacheSize()) {
  size_ = cache_size(max_bytes, {page_tokens(), page_bytes()}, state_bytes());
}
PageCache::PageCache(models::CausalLM& model, CacheSize size)
    : store_(ops::backend_of(model.device()).make_store(cached_layers(model), model.device())),
      states_(carried_sizes(model), model.device()),
      size_(size),
      tree_(page_tokens()) {}

// A free slot, one more, or that of the oldest snapshot.
int64_t PageCache::take_state() {
  if (free_states_.empty() && made_states_ < size_.states) return made_states_++;
  if (free_states_.empty()) {
    const int64_t slot = snapshots_.drop_oldest();
    check(slot >= 0, "no room for another sequence's state: ", size_.states,
          " fit the cache; fewer sequences at once need less");
    return slot;
  }
  const int64_t slot = free_states_.back();
  free_states_.pop_back();
  return slot;
}

int64_t PageCache::take() {
  if (free_.empty()) {
    const int64_t first = static_cast<int64_t>(references_.size());
    if (first < size_.pages) {
      const int64_t count = std::min(ops::KvStore::kPagesOfChunk, size_.pages - first);
      store_->grow(first + count, size_.pages);
      for (int64_t i = count; i-- > 0;) free_.push_back(first + i);
      references_.resize(static_cast<size_t>(first + count), 0);
    } else {
      const int64_t page = tree_.evict();
      check(page >= 0, "the key-value cache is full: ", size_.pages,
            " pages; fewer sequences at once need less");
      release(page);
    }
  }
  const int64_t page = free_.back();
  free_.pop_back();
  references(page) = 1;
  return page;
}

int64_t PageCache::snapshot_slot() {
  if (free_states_.empty() && made_states_ == size_.states) return snapshots_.drop_oldest(true);
  return take_state();
}

void PageCache::hold(int64_t page) {
  ++references(page);
  if (tree_.contains(page)) tree_.set_in_use(page);
}

void PageCache::release(int64_t page) {
  const int32_t left = --references(page);
  if (left == 0) {
    free_.push_back(page);
    if (const int64_t slot = snapshots_.drop(page); slot >= 0) free_states_.push_back(slot);
  }
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
  states_.clear();
  free_.clear();
  references_.clear();
  free_states_.clear();
  made_states_ = 0;
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
  int64_t states = static_cast<int64_t>(free_states_.size()) + snapshots_.count();
  for (const PageTable* table : live) states += table->state_ >= 0;
  check(states == made_states_, made_states_, " states, of which ", states, " are known");
}

// From the last page on: a page of the prefix tree falls out of use after those that go on from it.
void PageTable::clear() {
  for (; !pages_.empty(); pages_.pop_back()) cache_->release(pages_.back());
  if (state_ >= 0) cache_->free_states_.push_back(state_);
  state_ = -1;
  state_tokens_ = 0;
}

void PageTable::take_state() {
  if (cache_->has_states() && state_ < 0) state_ = cache_->take_state();
}

void PageTable::share(int64_t page) {
  cache_->hold(page);
  pages_.push_back(page);
}

void PageTable::reserve(int64_t tokens) {
  take_state();
  while (static_cast<int64_t>(pages_.size()) < pages_for(tokens, cache_->page_tokens()))
    pages_.push_back(cache_->take());
}

void PageTable::truncate(int64_t tokens) {
  check(!cache_->has_states(), "a sequence whose layers have states cannot go back");
  while (static_cast<int64_t>(pages_.size()) > pages_for(tokens, cache_->page_tokens())) {
    cache_->release(pages_.back());
    pages_.pop_back();
  }
}

void PageTable::fork(const PageTable& from, int64_t tokens) {
  root_ = from.root_;
  weights_ = from.weights_;
  if (cache_->has_states()) {
    check(from.state_tokens_ == tokens, "a sequence forks at position ", tokens,
          ", and its state is at ", from.state_tokens_);
    take_state();
    cache_->states_.copy(from.state_, state_);
    state_tokens_ = tokens;
  }
  const int64_t whole = tokens / cache_->page_tokens();
  for (int64_t i = 0; i < whole; ++i) share(from.pages_[static_cast<size_t>(i)]);
  if (tokens % cache_->page_tokens() == 0) return;
  pages_.push_back(cache_->take());
  cache_->store_->copy_page(from.pages_[static_cast<size_t>(whole)], pages_.back());
}

int64_t PageTable::reuse(std::span<const int32_t> tokens, std::span<const ExternalRows> rows) {
  weights_ = cache_->weights_;
  std::vector<int64_t> known = cache_->tree_.find(root_, tokens.first(tokens.size() - 1), rows);
  // The keys of open rows are computed together.
  const auto ends_in_open = [&] {
    const int64_t end = std::ssize(known) * cache_->page_tokens();
    return whole_cut(rows, end) != end;
  };
  while (!known.empty() &&
         (ends_in_open() || (cache_->has_states() && cache_->snapshots_.of(known.back()) < 0)))
    known.pop_back();
  for (const int64_t page : known) share(page);
  const int64_t filled = static_cast<int64_t>(pages_.size()) * cache_->page_tokens();
  if (cache_->has_states() && filled > 0) {
    const int64_t snapshot = cache_->snapshots_.use(pages_.back());
    take_state();  // it may be the snapshot's, if there is no other
    if (state_ != snapshot) cache_->states_.copy(snapshot, state_);
    state_tokens_ = filled;
  }
  return filled;
}

// Writes the state at the end, and snapshots at the last page that the rows fill and at every
// kTokensOfSnapshot-th position; of single rows at the latter alone.
ops::StateSlots PageTable::state_slots(int64_t first_row, int64_t position, int64_t tokens) {
  check(state_ >= 0 && state_tokens_ == position, "a sequence goes on at position ", position,
        ", and its state is at ", state_tokens_);
  ops::StateSlots slots{position > 0 ? state_ : -1, {}};
  const int64_t width = cache_->page_tokens(), end = position + tokens;
  for (int64_t p = (position / width + 1) * width; p <= end; p += width) {
    const bool last = tokens > 1 && p + width > end;
    const int64_t page = pages_[static_cast<size_t>(p / width - 1)];
    if ((!last && p % kTokensOfSnapshot != 0) || cache_->snapshots_.of(page) >= 0) continue;
    const int64_t slot = cache_->snapshot_slot();
    if (slot < 0) continue;
    cache_->snapshots_.add(page, slot);
    slots.to.emplace_back(first_row + p - position - 1, slot);
  }
  slots.to.emplace_back(first_row + tokens - 1, state_);
  state_tokens_ = end;
  return slots;
}

void PageTable::publish(std::span<const int32_t> tokens, std::span<const ExternalRows> rows) {
  if (weights_ != cache_->weights_) return;  // other weights computed the first of them
  const size_t width = static_cast<size_t>(cache_->page_tokens());
  int64_t parent = root_;
  for (size_t i = 0; (i + 1) * width <= tokens.size(); ++i) {
    const int64_t mine = pages_[i];
    const bool was_known = cache_->tree_.contains(mine);
    const auto at = static_cast<int64_t>(i * width), count = static_cast<int64_t>(width);
    const int64_t known = cache_->tree_.insert(parent, tokens.subspan(i * width, width), mine,
                                               rows_within(rows, at, count));
    if (known != mine) {  // the same bits: this page goes, that one takes its place
      cache_->hold(known);
      cache_->snapshots_.move(mine, known);
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
  std::vector<ops::StateSlots> slots;
  int64_t rows = 0;
  check(!parts_.empty(), "a pass over no cached sequences");
  PageCache& cache = *parts_.front().table->cache_;
  cache.snapshots_.begin_pass();
  for (const Part& part : parts_) {
    if (cache.has_states())
      slots.push_back(
          part.table->state_slots(rows, forest.position[static_cast<size_t>(rows)], part.tokens));
    sequences.push_back({part.table->pages_, rows, part.tokens});
    rows += part.tokens;
  }
  check(rows > 0 && rows == forest.num_tokens(), "cached rows: ", rows, " for a batch of ",
        forest.num_tokens());
  std::unique_ptr<ops::KvPass> pass = cache.store_->pass(sequences, forest);
  if (cache.has_states()) pass->carry(cache.states_, std::move(slots));
  return pass;
}

}  // namespace temper::generate
