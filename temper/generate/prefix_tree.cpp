#include "temper/generate/prefix_tree.h"

#include "temper/base/error.h"

namespace temper::generate {

PrefixTree::Key PrefixTree::key(int64_t parent, std::span<const int32_t> tokens,
                                std::span<const ExternalRows> rows) {
  Key key{parent, {tokens.begin(), tokens.end()}, {}};
  for (const ExternalRows& r : rows) key.rows.push_back({r.begin, r.count, r.first, r.digest});
  return key;
}

std::vector<int64_t> PrefixTree::find(int64_t root, std::span<const int32_t> tokens,
                                      std::span<const ExternalRows> rows) const {
  std::vector<int64_t> pages;
  const int64_t end = std::ssize(tokens) - page_tokens_;
  for (int64_t parent = root, at = 0; at <= end; at += page_tokens_) {
    const auto edge = edges_.find(
        key(parent, tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(page_tokens_)),
            rows_within(rows, at, page_tokens_)));
    if (edge == edges_.end()) break;
    pages.push_back(parent = edge->second);
  }
  return pages;
}

int64_t PrefixTree::insert(int64_t parent, std::span<const int32_t> tokens, int64_t page,
                           std::span<const ExternalRows> rows) {
  const auto [edge, inserted] = edges_.try_emplace(key(parent, tokens, rows), page);
  if (!inserted) return edge->second;
  if (nodes_.size() <= static_cast<size_t>(page)) nodes_.resize(static_cast<size_t>(page) + 1);
  nodes_[static_cast<size_t>(page)] = {.known = true, .edge = edge};
  return page;
}

bool PrefixTree::contains(int64_t page) const {
  return static_cast<size_t>(page) < nodes_.size() && nodes_[static_cast<size_t>(page)].known;
}

void PrefixTree::set_in_use(int64_t page) {
  Node& node = nodes_[static_cast<size_t>(page)];
  if (node.unused) unused_.erase(node.place);
  node.unused = false;
}

void PrefixTree::set_unused(int64_t page) {
  Node& node = nodes_[static_cast<size_t>(page)];
  node.place = unused_.insert(unused_.end(), page);
  node.unused = true;
}

int64_t PrefixTree::evict() {
  if (unused_.empty()) return -1;
  const int64_t page = unused_.front();
  unused_.pop_front();
  Node& node = nodes_[static_cast<size_t>(page)];
  edges_.erase(node.edge);
  node = {};
  return page;
}

std::vector<int64_t> PrefixTree::pages() const {
  std::vector<int64_t> out;
  for (const auto& [key, page] : edges_) out.push_back(page);
  return out;
}

void PrefixTree::clear() {
  edges_.clear();
  nodes_.clear();
  unused_.clear();
}

void PrefixTree::check_invariants(const std::vector<bool>& in_use) const {
  std::vector<bool> evicted(nodes_.size());
  for (const int64_t page : unused_) evicted[static_cast<size_t>(page)] = true;
  for (const auto& [key, page] : edges_) {
    const size_t i = static_cast<size_t>(page);
    check(evicted[i] != in_use[i], "page ", page, " of the prefix tree is ",
          in_use[i] ? "in use and can be evicted" : "unused and cannot be evicted");
    check(is_root(key.parent) || contains(key.parent), "page ", page, " goes on from page ",
          key.parent, ", which is not known any more");
  }
  std::fill(evicted.begin(), evicted.end(), false);
  for (const int64_t page : unused_) {
    evicted[static_cast<size_t>(page)] = true;
    const int64_t parent = nodes_[static_cast<size_t>(page)].edge->first.parent;
    check(is_root(parent) || !evicted[static_cast<size_t>(parent)], "page ", parent,
          " would be evicted before page ", page, ", which goes on from it");
  }
}

}  // namespace temper::generate
