#include "temper/generate/prefix_tree.h"

namespace temper::generate {

std::vector<int64_t> PrefixTree::find(std::span<const int32_t> tokens) {
  std::vector<int64_t> pages;
  Node* node = &root_;
  const size_t width = static_cast<size_t>(page_tokens_);
  ++clock_;
  for (size_t i = 0; i + width <= tokens.size(); i += width) {
    const auto child = node->children.find({tokens.begin() + static_cast<int64_t>(i),
                                            tokens.begin() + static_cast<int64_t>(i + width)});
    if (child == node->children.end()) break;
    node = child->second.get();
    node->used = clock_;
    pages.push_back(node->page);
  }
  return pages;
}

std::vector<int64_t> PrefixTree::insert(std::span<const int32_t> tokens,
                                        std::span<const int64_t> pages) {
  std::vector<int64_t> added;
  Node* node = &root_;
  const size_t width = static_cast<size_t>(page_tokens_);
  ++clock_;
  for (size_t i = 0; (i + 1) * width <= tokens.size() && i < pages.size(); ++i) {
    std::vector<int32_t> edge(tokens.begin() + static_cast<int64_t>(i * width),
                              tokens.begin() + static_cast<int64_t>((i + 1) * width));
    std::unique_ptr<Node>& child = node->children[edge];
    if (!child) {
      child = std::make_unique<Node>();
      child->parent = node;
      child->tokens = std::move(edge);
      child->page = pages[i];
      added.push_back(pages[i]);
    } else if (child->page != pages[i]) {
      break;  // known in another's page, below which only its holders' pages may stand
    }
    node = child.get();
    node->used = clock_;
  }
  return added;
}

std::vector<int64_t> PrefixTree::pages() {
  std::vector<int64_t> out;
  each(root_, [&](Node& node) { out.push_back(node.page); });
  return out;
}

}  // namespace temper::generate
