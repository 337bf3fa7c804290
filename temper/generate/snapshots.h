// Which pages have a snapshot: the states of layers (ops/state_store.h) at a page's end, in a slot.
// The least recently used one goes first.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>

namespace temper::generate {

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

}  // namespace temper::generate
