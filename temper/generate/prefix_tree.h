// Pages of keys and values that are known by the tokens that they hold, so that a sequence which
// begins alike starts with them (prefix caching; as in SGLang's RadixAttention, Zheng et al., arXiv
// 2312.07104). An edge of the tree is a whole page of tokens, with the digests of the external rows
// (ops/forest.h) that stand in place of some. A page that no sequence uses any more stays until its
// memory is wanted; the least recently used one goes first.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "temper/ops/forest.h"

namespace temper::generate {

class PrefixTree {
 public:
  // Where sequences of an adapter (nn::Context::adapter) begin: pages of different adapters hold
  // different keys for the same tokens.
  static int64_t root(int adapter) { return -2 - adapter; }
  static bool is_root(int64_t parent) { return parent < 0; }

  explicit PrefixTree(int64_t page_tokens) : page_tokens_(page_tokens) {}

  // The pages that hold the longest known beginning of the tokens, in order.
  std::vector<int64_t> find(int64_t root, std::span<const int32_t> tokens,
                            std::span<const ExternalRows> rows = {}) const;
  // Makes a page known: it holds `tokens` (page_tokens of them) and goes on where `parent` ends
  // (a root: it begins a sequence). Gives the page under which these tokens are known: this one, or
  // another one that was known before.
  int64_t insert(int64_t parent, std::span<const int32_t> tokens, int64_t page,
                 std::span<const ExternalRows> rows = {});
  bool contains(int64_t page) const;

  // Whether sequences use a known page. A page falls out of use after those that go on from it, and
  // a sequence that uses a page uses all pages before it; so the page that fell out of use first
  // has none that go on from it.
  void set_in_use(int64_t page);
  void set_unused(int64_t page);
  // Forgets the page that fell out of use first, in constant time; -1: every known page is in use.
  int64_t evict();

  std::vector<int64_t> pages() const;
  void clear();
  // Throws RunError unless exactly the known pages that are not in_use[page] can be evicted, in an
  // order in which no page goes before one that goes on from it.
  void check_invariants(const std::vector<bool>& in_use) const;

 private:
  struct Key {
    struct Rows {
      int64_t begin, count, first;
      std::string digest;
      auto operator<=>(const Rows&) const = default;
    };
    int64_t parent;  // the page before, or a root
    std::vector<int32_t> tokens;
    std::vector<Rows> rows;
    auto operator<=>(const Key&) const = default;
  };
  using Edges = std::map<Key, int64_t>;
  struct Node {
    bool known = false, unused = false;
    Edges::iterator edge;
    std::list<int64_t>::iterator place;  // in unused_
  };
  static Key key(int64_t parent, std::span<const int32_t> tokens,
                 std::span<const ExternalRows> rows);

  int64_t page_tokens_;
  Edges edges_;
  std::vector<Node> nodes_;    // by page
  std::list<int64_t> unused_;  // least recently used first
};

}  // namespace temper::generate
