#include "temper/data/rows/token_tree.h"

#include <algorithm>
#include <numeric>

#include "temper/base/error.h"
#include "temper/text/chat/conversation.h"

namespace temper::data {
namespace {

// A segment with links to its children, while the tree grows.
struct Node {
  std::vector<int32_t> tokens, labels;
  std::vector<size_t> children;  // indices of nodes, in the order of their paths
};

class Trie {
 public:
  Trie() : nodes_(1) {}  // node 0 has no tokens: the roots are its children

  void add(const TokenPath& path) {
    size_t node = 0, at = 0;
    while (at < path.tokens.size()) {
      const size_t child = child_with(node, path.tokens[at]);
      if (child == 0) return append(node, path, at);
      at = merge(child, path, at);
      node = child;
    }
  }

  // Depth first.
  std::vector<Segment> segments() {
    std::vector<Segment> out;
    struct Visit {
      size_t node;
      int32_t parent;
    };
    std::vector<Visit> stack;
    const auto push_children = [&](size_t node, int32_t parent) {
      const std::vector<size_t>& children = nodes_[node].children;
      for (auto it = children.rbegin(); it != children.rend(); ++it) stack.push_back({*it, parent});
    };
    push_children(0, -1);
    while (!stack.empty()) {
      const Visit visit = stack.back();
      stack.pop_back();
      Node& node = nodes_[visit.node];
      push_children(visit.node, static_cast<int32_t>(out.size()));
      out.push_back({visit.parent, std::move(node.tokens), std::move(node.labels), {}});
    }
    return out;
  }

 private:
  // The child that begins with this token; 0: none.
  size_t child_with(size_t node, int32_t token) const {
    for (const size_t child : nodes_[node].children)
      if (nodes_[child].tokens[0] == token) return child;
    return 0;
  }

  // What of the path no node has yet: it lengthens a leaf, and is a child of any other node.
  void append(size_t node, const TokenPath& path, size_t at) {
    const bool leaf = node != 0 && nodes_[node].children.empty();
    const size_t target = leaf ? node : nodes_.size();
    if (!leaf) {
      nodes_[node].children.push_back(target);
      nodes_.emplace_back();
    }
    const auto from = static_cast<std::ptrdiff_t>(at);
    Node& to = nodes_[target];
    to.tokens.insert(to.tokens.end(), path.tokens.begin() + from, path.tokens.end());
    to.labels.insert(to.labels.end(), path.labels.begin() + from, path.labels.end());
  }

  // Joins the path's tokens from `at` on with the node's as far as they agree, and splits the node
  // where it goes on differently. Returns the path's place behind what they share.
  size_t merge(size_t index, const TokenPath& path, size_t at) {
    size_t same = 0;
    const size_t size = nodes_[index].tokens.size();
    for (; same < size && at < path.tokens.size(); ++same, ++at) {
      if (nodes_[index].tokens[same] != path.tokens[at]) break;
      if (path.labels[at] != kNotTrained) nodes_[index].labels[same] = path.labels[at];
    }
    if (same < size && at < path.tokens.size()) split(index, same);
    return at;
  }

  void split(size_t index, size_t at) {
    Node rest;
    Node& node = nodes_[index];
    const auto from = static_cast<std::ptrdiff_t>(at);
    rest.tokens.assign(node.tokens.begin() + from, node.tokens.end());
    rest.labels.assign(node.labels.begin() + from, node.labels.end());
    rest.children = std::move(node.children);
    node.tokens.resize(at);
    node.labels.resize(at);
    node.children = {nodes_.size()};
    nodes_.push_back(std::move(rest));
  }

  std::vector<Node> nodes_;
};

}  // namespace

int64_t SftRow::supervised() const {
  int64_t count = 0;
  for (const Segment& s : segments)
    for (size_t i = s.parent < 0; i < s.labels.size(); ++i) count += s.labels[i] >= 0;
  return count;
}

int64_t SftRow::num_tokens() const {
  return path_lengths.empty()
             ? num_computed()
             : std::accumulate(path_lengths.begin(), path_lengths.end(), int64_t{0});
}

int64_t SftRow::num_computed() const {
  int64_t count = 0;
  for (const Segment& s : segments) count += static_cast<int64_t>(s.tokens.size());
  return count;
}

bool SftRow::trains(int32_t token) const {
  for (const Segment& s : segments)
    if (std::find(s.labels.begin() + (s.parent < 0), s.labels.end(), token) != s.labels.end())
      return true;
  return false;
}

SftRow row_of(TokenPath path) {
  SftRow row;
  row.segments.push_back(
      {-1, std::move(path.tokens), std::move(path.labels), std::move(path.images)});
  return row;
}

SftRow tree_of(const std::vector<TokenPath>& paths) {
  Trie trie;
  SftRow row;
  for (const TokenPath& path : paths) {
    check(!path.tokens.empty() && path.tokens.size() == path.labels.size(),
          "a path needs tokens and as many labels");
    trie.add(path);
    row.path_lengths.push_back(static_cast<int64_t>(path.tokens.size()));
  }
  row.segments = trie.segments();
  return row;
}

}  // namespace temper::data
