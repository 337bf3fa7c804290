// Pages of earlier prompts, found again by the tokens that they hold: a tree whose edges are whole
// pages of tokens. What no sequence uses any more stays until its page is wanted; the least
// recently used goes first (as in SGLang's RadixAttention, Zheng et al., arXiv 2312.07104).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace temper::generate {

class PrefixTree {
 public:
  explicit PrefixTree(int64_t page_tokens) : page_tokens_(page_tokens) {}

  // The pages that hold the longest known beginning of the tokens, in order. They count as used
  // now.
  std::vector<int64_t> find(std::span<const int32_t> tokens);
  // Makes the pages of these tokens known: page i holds tokens [i, i + 1) * page_tokens, whole
  // pages only. Returns the pages that are new to the tree: it holds a reference to each from now
  // on.
  std::vector<int64_t> insert(std::span<const int32_t> tokens, std::span<const int64_t> pages);

  // Takes out the leaf that was used longest ago among those whose page `free` says nobody else
  // holds; -1: there is none.
  template <class Free>
  int64_t evict(Free free) {
    Node* oldest = nullptr;
    each(root_, [&](Node& node) {
      if (node.children.empty() && free(node.page) && (!oldest || node.used < oldest->used))
        oldest = &node;
    });
    if (!oldest) return -1;
    const int64_t page = oldest->page;
    auto& siblings = oldest->parent->children;
    siblings.erase(siblings.find(oldest->tokens));  // ends `oldest`
    return page;
  }

  // All pages of the tree.
  std::vector<int64_t> pages();
  void clear() { root_.children.clear(); }

 private:
  struct Node {
    Node* parent = nullptr;
    std::vector<int32_t> tokens;
    int64_t page = -1;
    uint64_t used = 0;
    std::map<std::vector<int32_t>, std::unique_ptr<Node>> children;
  };
  template <class Visit>
  static void each(Node& node, const Visit& visit) {
    std::vector<Node*> waiting{&node};
    while (!waiting.empty()) {
      Node* next = waiting.back();
      waiting.pop_back();
      for (auto& [tokens, child] : next->children) waiting.push_back(child.get());
      if (next->parent) visit(*next);
    }
  }

  int64_t page_tokens_;
  uint64_t clock_ = 0;
  Node root_;
};

}  // namespace temper::generate
