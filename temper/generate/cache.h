// Keys and values of the sequences that are being sampled, in pages (PagedAttention, Kwon et al.,
// arXiv 2309.06180): a page holds a fixed number of consecutive positions of one sequence in every
// layer. Pages stay known by their tokens after their sequences have ended (prefix_tree.h).
//
// Layers with a state (ops/layers/recurrent.h) have no keys: a running sequence has a slot with its
// state at its end, which forking it copies. Snapshots, states at the ends of some pages, are kept
// while no sequence wants their slots; a known prefix is used again up to the last page with a
// snapshot.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "temper/generate/prefix_tree.h"
#include "temper/models/model.h"
#include "temper/ops/kv_store.h"
#include "temper/ops/state_store.h"

namespace temper::generate {

// Which pages have a snapshot: the states of layers (ops/state_store.h) at a page's end, in a slot.
// The least recently used one goes first.
class Snapshots {
 public:
  int64_t count() const { return static_cast<int64_t>(of_page_.size()); }
  // The slot of a page's snapshot; -1: it has none.
  int64_t of(int64_t page) const {
    const auto it = of_page_.find(page);
    return it == of_page_.end() ? -1 : it->second.slot;
  }
  // The same of a page that has one, which is now the most recently used.
  int64_t use(int64_t page) {
    Snapshot& snapshot = of_page_.at(page);
    order_.splice(order_.end(), order_, snapshot.place);
    return snapshot.slot;
  }
  // A page without a snapshot has one, which the pass that was begun last writes.
  void add(int64_t page, int64_t slot) {
    of_page_[page] = {slot, pass_, order_.insert(order_.end(), page)};
  }
  void begin_pass() { ++pass_; }

  // Forgets the page's snapshot. Gives its slot; -1: it had none.
  int64_t drop(int64_t page) {
    const auto it = of_page_.find(page);
    if (it == of_page_.end()) return -1;
    const int64_t slot = it->second.slot;
    order_.erase(it->second.place);
    of_page_.erase(it);
    return slot;
  }
  // The same of the least recently used one, if there is any; with `of_earlier` only of one that an
  // earlier pass wrote.
  int64_t drop_oldest(bool of_earlier = false) {
    if (order_.empty()) return -1;
    if (of_earlier && of_page_.at(order_.front()).pass == pass_) return -1;
    return drop(order_.front());
  }
  // Page `to`, which holds the same tokens, gets the snapshot of `from`, unless it has one.
  void move(int64_t from, int64_t to) {
    const int64_t slot = of(from);
    if (slot < 0 || of(to) >= 0) return;
    const uint64_t pass = of_page_.at(from).pass;
    drop(from);
    add(to, slot);
    of_page_.at(to).pass = pass;
  }

 private:
  struct Snapshot {
    int64_t slot = -1;
    uint64_t pass = 0;
    std::list<int64_t>::iterator place;  // in order_
  };
  uint64_t pass_ = 0;
  std::unordered_map<int64_t, Snapshot> of_page_;
  std::list<int64_t> order_;  // pages, least recently used first
};

class PageTable;

// Pages that hold so many positions.
inline int64_t pages_for(int64_t tokens, int64_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

// What a cache may hold.
struct CacheSize {
  int64_t pages = 0, states = 0;
  static constexpr int64_t kNoStates = INT64_MAX;  // `states` where no layer has any
};
// What fits: a state for each kTokensOfState tokens of pages, at least one for a prompt and one for
// its sample.
inline constexpr int64_t kTokensOfState = 1024;
// Snapshots of a sequence lie so many tokens apart.
inline constexpr int64_t kTokensOfSnapshot = 256;
CacheSize cache_size(int64_t max_bytes, const ops::CachePage& page, int64_t state_bytes);

// Not thread-safe, except for the constants max_pages(), max_states(), page_bytes(), state_bytes()
// and page_tokens().
class PageCache {
 public:
  // At most max_bytes, in whole pages and states. Memory is taken as it is needed.
  PageCache(models::CausalLM& model, int64_t max_bytes);
  PageCache(models::CausalLM& model, CacheSize size);

  int64_t max_pages() const { return size_.pages; }
  int64_t max_states() const { return size_.states; }
  // Of one sequence in all layers; 0: no layer has a state.
  int64_t state_bytes() const { return states_.slot_bytes(); }
  // Bytes of one page in all layers.
  int64_t page_bytes() const { return store_->page_bytes(); }
  int64_t page_tokens() const { return store_->page_tokens(); }

  // Forgets the tokens of all pages, when the model's weights have changed, say. What running
  // sequences have computed until now is not made known any more.
  void forget_prefixes();
  // Gives the memory back. No sequence may be alive.
  void release_memory();
  // Throws RunError unless every page is free or referenced exactly as often as the live tables and
  // the prefix tree hold it.
  void check_invariants(std::span<const PageTable* const> live) const;

 private:
  friend class PageTable;
  friend class BatchRows;
  int64_t take();
  void hold(int64_t page);
  void release(int64_t page);
  int32_t& references(int64_t page) { return references_[static_cast<size_t>(page)]; }

  bool has_states() const { return state_bytes() > 0; }
  int64_t take_state();
  // A slot that no sequence needs now; -1: there is none.
  int64_t snapshot_slot();

  std::unique_ptr<ops::KvStore> store_;  // grows as pages are needed
  ops::StateStore states_;
  CacheSize size_;
  Snapshots snapshots_;
  std::vector<int64_t> free_states_;
  int64_t made_states_ = 0;
  std::vector<int64_t> free_;
  std::vector<int32_t> references_;  // by page: of tables, and one of the tree
  uint64_t weights_ = 0;             // counts forget_prefixes
  PrefixTree tree_;
};

// The pages of one sequence in order of position (a block table). Gives them back when it ends.
class PageTable {
 public:
  // For a sequence that goes through the model under this adapter (nn::Context::adapter).
  explicit PageTable(PageCache& cache, int adapter = 0)
      : cache_(&cache), root_(PrefixTree::root(adapter)) {}
  ~PageTable() { clear(); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  // Gives the pages back.
  void clear();
  // Room for `tokens` positions. Throws RunError when no page is left.
  void reserve(int64_t tokens);
  // Gives the pages back that lie behind the first `tokens` positions.
  void truncate(int64_t tokens);
  // An empty table begins as the first `tokens` positions of another: whole pages are shared, the
  // last, partial one is copied. Where layers have states, the other one has gone through the model
  // exactly so far.
  void fork(const PageTable& from, int64_t tokens);
  // An empty table begins with the known pages of these tokens and rows, where layers have states
  // up to the last one with a snapshot, never between open rows. Returns the positions that are
  // filled: fewer than the tokens, so that one is left to go through the model.
  int64_t reuse(std::span<const int32_t> tokens, std::span<const ExternalRows> rows = {});
  // The whole pages of these tokens are filled: later sequences may begin with them. Where another
  // page is known that holds the same, the table uses that one from now on.
  void publish(std::span<const int32_t> tokens, std::span<const ExternalRows> rows = {});

 private:
  friend class PageCache;
  friend class BatchRows;
  void share(int64_t page);
  void take_state();
  // The slots of a pass over rows [first_row, first_row + tokens) at these positions on.
  ops::StateSlots state_slots(int64_t first_row, int64_t position, int64_t tokens);

  PageCache* cache_;
  int64_t root_;
  int64_t state_ = -1;        // the slot of its state
  int64_t state_tokens_ = 0;  // the position of that
  uint64_t weights_ = 0;      // PageCache::weights_ when the first page was filled
  std::vector<int64_t> pages_;
};

// The rows of one batch over cached sequences of one PageCache.
class BatchRows {
 public:
  // The next `tokens` rows of the batch go on with this sequence.
  void add(PageTable& table, int64_t tokens) { parts_.push_back({&table, tokens}); }
  // The pass over these rows, for nn::Context::cache, once. The tables must not change while it
  // lives.
  std::unique_ptr<const ops::KvPass> pass(const Forest& forest) const;

 private:
  struct Part {
    PageTable* table;
    int64_t tokens;
  };
  std::vector<Part> parts_;
};

}  // namespace temper::generate
