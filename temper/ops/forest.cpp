#include "temper/ops/forest.h"

#include <algorithm>

#include "temper/base/error.h"

namespace temper {

void check_rows(std::span<const ExternalRows> rows, int64_t tokens) {
  int64_t end = 0;
  for (const ExternalRows& r : rows) {
    check(r.begin >= end && r.count > 0 && r.count <= tokens - r.begin, "external rows of tokens ",
          r.begin, " to ", r.begin + r.count, ": expected some from ", end, " to ", tokens);
    check(r.features.defined() && r.features.dim() == 2 && r.features.scalar_type() == at::kFloat,
          "external rows: found features of another form, expected [R, hidden_size] float32");
    check(r.first >= 0 && r.count <= r.features.size(0) - r.first, "external rows: ", r.count,
          " from row ", r.first, " on of ", r.features.size(0));
    check(!r.digest.empty(), "external rows without a digest");
    end = r.begin + r.count;
  }
}

std::vector<ExternalRows> rows_within(std::span<const ExternalRows> rows, int64_t begin,
                                      int64_t count) {
  std::vector<ExternalRows> out;
  for (const ExternalRows& r : rows) {
    const int64_t from = std::max(r.begin, begin),
                  until = std::min(r.begin + r.count, begin + count);
    if (from < until)
      out.push_back({from - begin, until - from, r.features, r.first + from - r.begin, r.digest});
  }
  return out;
}

int64_t Forest::add_root(std::span<const int32_t> segment_tokens, int64_t first_position,
                         std::span<const ExternalRows> segment_rows) {
  return append(-1, first_position, segment_tokens, segment_rows);
}

int64_t Forest::add_child(int64_t parent_segment, std::span<const int32_t> segment_tokens,
                          std::span<const ExternalRows> segment_rows) {
  check(parent_segment >= 0 && parent_segment < num_segments() &&
            subtree_end[parent_segment] == num_segments(),
        "forest: segment ", parent_segment, " is closed; children follow their parent depth first");
  const int64_t parent_end = segment_start[parent_segment + 1];
  return append(parent_segment, position[parent_end - 1] + 1, segment_tokens, segment_rows);
}

int64_t Forest::append(int64_t parent_segment, int64_t first_position,
                       std::span<const int32_t> segment_tokens,
                       std::span<const ExternalRows> segment_rows) {
  check(!segment_tokens.empty(), "forest: a segment needs at least one token");
  check_rows(segment_rows, std::ssize(segment_tokens));
  const int64_t segment = num_segments(), first_token = num_tokens();
  for (const ExternalRows& r : segment_rows) rows.emplace_back(r).begin += first_token;
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
