// The token forest: the only batch type. A batch is a forest of token segments; a token attends to
// its own segment up to itself and to all of its ancestors' tokens. A packed SFT batch is all
// roots; a GRPO group is a prompt with its completions as children; a row of the sampler is a root
// that starts where its cached prefix ends.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace temper {

struct Forest {
  std::vector<int32_t> tokens;            // [N], segments in depth-first order
  std::vector<int64_t> position;          // [N], absolute: a child goes on where its parent ends
  std::vector<int64_t> segment_start{0};  // [S+1]
  std::vector<int64_t> parent;            // [S], -1: a root
  std::vector<int64_t> subtree_end;       // [S], one past the last segment below

  // A backend's tables for this forest, kept for the operations of its passes. Read and written by
  // std::atomic_load and std::atomic_store: passes of several threads may share a forest.
  mutable std::shared_ptr<const void> derived;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_segments() const { return static_cast<int64_t>(parent.size()); }

  // Appends a root whose first token stands at `first_position` (above 0: its prefix is in a
  // cache). Returns its segment.
  int64_t add_root(std::span<const int32_t> segment_tokens, int64_t first_position = 0);

  // Appends a child of `parent_segment`. Throws RunError unless the parent lies on the path of the
  // segment added last: the order must stay depth-first. An empty segment is refused: it has no
  // token to attend from.
  int64_t add_child(int64_t parent_segment, std::span<const int32_t> segment_tokens);

 private:
  int64_t append(int64_t parent_segment, int64_t first_position,
                 std::span<const int32_t> segment_tokens);
};

}  // namespace temper
