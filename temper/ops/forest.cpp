#include "temper/ops/forest.h"

#include "temper/base/error.h"

namespace temper {

int64_t Forest::add_root(std::span<const int32_t> segment_tokens, int64_t first_position) {
  return append(-1, first_position, segment_tokens);
}

int64_t Forest::add_child(int64_t parent_segment, std::span<const int32_t> segment_tokens) {
  check(parent_segment >= 0 && parent_segment < num_segments() &&
            subtree_end[parent_segment] == num_segments(),
        "forest: segment ", parent_segment, " is closed; children follow their parent depth first");
  const int64_t parent_end = segment_start[parent_segment + 1];
  return append(parent_segment, position[parent_end - 1] + 1, segment_tokens);
}

int64_t Forest::append(int64_t parent_segment, int64_t first_position,
                       std::span<const int32_t> segment_tokens) {
  check(!segment_tokens.empty(), "forest: a segment needs at least one token");
  const int64_t segment = num_segments();
  tokens.insert(tokens.end(), segment_tokens.begin(), segment_tokens.end());
  for (size_t i = 0; i < segment_tokens.size(); ++i)
    position.push_back(first_position + static_cast<int64_t>(i));
  segment_start.push_back(num_tokens());
  parent.push_back(parent_segment);
  subtree_end.push_back(segment + 1);
  for (int64_t above = parent_segment; above >= 0; above = parent[above])
    subtree_end[above] = segment + 1;
  return segment;
}

}  // namespace temper
