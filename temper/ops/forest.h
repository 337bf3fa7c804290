// The token forest: the only batch type. A batch is a forest of token segments; a token attends to
// its own segment up to itself and to all of its ancestors' tokens. A packed SFT batch is all
// roots; a GRPO group is a prompt with its completions as children; a row of the sampler is a root
// that starts where its cached prefix ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace temper {

// Rows that stand in place of tokens' embeddings: an image's features, a soft prompt. They are what
// the first layer reads, in every family: neither its scale of embeddings nor noise is applied to
// them (of transformers' `inputs_embeds`, Granite scales them, Gemma does not). Their tokens are
// placeholders of the vocabulary, which all that looks at tokens besides (labels, penalties, Gemma
// 4's embeddings of layers) goes on seeing.
struct ExternalRows {
  int64_t begin = 0, count = 0;  // of the tokens [begin, begin + count) of a sequence or a forest
  at::Tensor features;  // [R, hidden_size] float32, anywhere; gradients flow where it asks for them
  int64_t first = 0;    // token begin + i reads features[first + i]
  // Not empty. Names the features as long as the model's weights stay: where digests are equal,
  // keys and values in a cache are shared.
  std::string digest;
};
// Throws RunError unless the rows are ascending, disjoint, within so many tokens, and have features
// and a digest.
void check_rows(std::span<const ExternalRows> rows, int64_t tokens);
// What of the rows belongs to the tokens [begin, begin + count), counted from `begin` on.
std::vector<ExternalRows> rows_within(std::span<const ExternalRows> rows, int64_t begin,
                                      int64_t count);

struct Forest {
  std::vector<int32_t> tokens;            // [N], segments in depth-first order
  std::vector<int64_t> position;          // [N], absolute: a child goes on where its parent ends
  std::vector<int64_t> segment_start{0};  // [S+1]
  std::vector<int64_t> parent;            // [S], -1: a root
  std::vector<int64_t> subtree_end;       // [S], one past the last segment below
  std::vector<ExternalRows> rows;         // of some tokens, ascending

  // A backend's tables for this forest, kept for the operations of its passes. Read and written by
  // std::atomic_load and std::atomic_store: passes of several threads may share a forest.
  mutable std::shared_ptr<const void> derived;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_segments() const { return static_cast<int64_t>(parent.size()); }

  // Appends a root whose first token stands at `first_position` (above 0: its prefix is in a
  // cache). `segment_rows` count from the segment's first token. Returns its segment.
  int64_t add_root(std::span<const int32_t> segment_tokens, int64_t first_position = 0,
                   std::span<const ExternalRows> segment_rows = {});

  // Appends a child of `parent_segment`. Throws RunError unless the parent lies on the path of the
  // segment added last: the order must stay depth-first. An empty segment is refused: it has no
  // token to attend from.
  int64_t add_child(int64_t parent_segment, std::span<const int32_t> segment_tokens,
                    std::span<const ExternalRows> segment_rows = {});

 private:
  int64_t append(int64_t parent_segment, int64_t first_position,
                 std::span<const int32_t> segment_tokens,
                 std::span<const ExternalRows> segment_rows);
};

}  // namespace temper
