#include "temper/ops/forest.h"

#include <algorithm>

#include "temper/base/error.h"

namespace temper {
namespace {

constexpr int64_t kMostOfGrid = 1 << 15;

// Of rows within the grid, or of none: whether the last one is the grid's.
bool ends_grid(const ExternalRows& r) { return r.cells() > 0 && r.first + r.count == r.cells(); }
int64_t shift_of_grid(const ExternalRows& r) {
  return std::max(r.grid_rows, r.grid_columns) - r.cells();
}

void check_features(const ExternalRows& r) {
  check(r.features.defined() && r.features.dim() == 2 && r.features.scalar_type() == at::kFloat,
        "external rows: found features of another form, expected [R, hidden_size] float32");
  check(r.count <= r.features.size(0) - r.first, "external rows: ", r.count, " from row ", r.first,
        " on of ", r.features.size(0));
  check(!r.deep.defined() ||
            (r.deep.dim() == 3 && r.deep.scalar_type() == at::kFloat &&
             r.deep.size(1) == r.features.size(0) && r.deep.size(2) == r.features.size(1)),
        "external rows: found deep features of another form, expected [layers, R, hidden_size] "
        "float32");
}

}  // namespace

int64_t rotation_shift(std::span<const ExternalRows> rows, int64_t tokens) {
  int64_t shift = 0;
  for (const ExternalRows& r : rows)
    if (r.begin + r.count <= tokens && ends_grid(r)) shift += shift_of_grid(r);
  return shift;
}

void check_rows(std::span<const ExternalRows> rows, int64_t tokens) {
  int64_t end = 0;
  for (const ExternalRows& r : rows) {
    check(r.begin >= end && r.count > 0 && r.count <= tokens - r.begin, "external rows of tokens ",
          r.begin, " to ", r.begin + r.count, ": expected some from ", end, " to ", tokens);
    check(r.first >= 0, "external rows: from row ", r.first, " on");
    check(!r.digest.empty(), "external rows without a digest");
    if (r.features.defined() || !r.source) check_features(r);
    check(r.grid_rows >= 0 && r.grid_columns >= 0 && r.grid_rows <= kMostOfGrid &&
              r.grid_columns <= kMostOfGrid &&
              (r.cells() == 0 ? r.grid_rows == r.grid_columns : r.first + r.count <= r.cells()),
          "external rows: ", r.count, " from cell ", r.first, " on of a grid of ", r.grid_rows,
          " rows and ", r.grid_columns, " columns");
    end = r.begin + r.count;
  }
}

int64_t whole_cut(std::span<const ExternalRows> rows, int64_t tokens, int64_t least) {
  for (const ExternalRows& r : rows)
    if (r.open && r.begin < tokens && tokens < r.begin + r.count)
      return r.begin > least ? r.begin : r.begin + r.count;
  return tokens;
}

std::vector<ExternalRows> rows_within(std::span<const ExternalRows> rows, int64_t begin,
                                      int64_t count) {
  std::vector<ExternalRows> out;
  for (const ExternalRows& r : rows) {
    const int64_t from = std::max(r.begin, begin),
                  until = std::min(r.begin + r.count, begin + count);
    if (from >= until) continue;
    ExternalRows& part = out.emplace_back(r);
    part.begin = from - begin;
    part.count = until - from;
    part.first += from - r.begin;
  }
  return out;
}

int64_t Forest::add_root(std::span<const int32_t> segment_tokens, int64_t first_position,
                         std::span<const ExternalRows> segment_rows, int64_t first_shift) {
  return append(-1, first_position, segment_tokens, segment_rows, first_shift);
}

int64_t Forest::add_child(int64_t parent_segment, std::span<const int32_t> segment_tokens,
                          std::span<const ExternalRows> segment_rows) {
  check(parent_segment >= 0 && parent_segment < num_segments() &&
            subtree_end[parent_segment] == num_segments(),
        "forest: segment ", parent_segment, " is closed; children follow their parent depth first");
  const int64_t parent_end = segment_start[parent_segment + 1];
  return append(parent_segment, position[parent_end - 1] + 1, segment_tokens, segment_rows,
                shift[parent_segment]);
}

int64_t Forest::append(int64_t parent_segment, int64_t first_position,
                       std::span<const int32_t> segment_tokens,
                       std::span<const ExternalRows> segment_rows, int64_t first_shift) {
  check(!segment_tokens.empty(), "forest: a segment needs at least one token");
  check_rows(segment_rows, std::ssize(segment_tokens));
  const int64_t segment = num_segments(), first_token = num_tokens();
  for (const ExternalRows& r : segment_rows) rows.emplace_back(r).begin += first_token;
  tokens.insert(tokens.end(), segment_tokens.begin(), segment_tokens.end());
  for (size_t i = 0; i < segment_tokens.size(); ++i)
    position.push_back(first_position + static_cast<int64_t>(i));
  append_rotation(first_token, segment_rows, first_shift);
  append_open(first_token, segment_rows);
  segment_start.push_back(num_tokens());
  parent.push_back(parent_segment);
  subtree_end.push_back(segment + 1);
  for (int64_t above = parent_segment; above >= 0; above = parent[above])
    subtree_end[above] = segment + 1;
  return segment;
}

void Forest::append_rotation(int64_t first_token, std::span<const ExternalRows> segment_rows,
                             int64_t first_shift) {
  const auto has_grid = [](const ExternalRows& r) { return r.cells() > 0; };
  const bool turns = first_shift != 0 || std::ranges::any_of(segment_rows, has_grid);
  shift.push_back(first_shift);
  if (!turns && rotation.empty()) return;
  const auto add_text = [&](int64_t from, int64_t end, int64_t by) {
    for (int64_t t = from; t < end; ++t) {
      const auto p = static_cast<int32_t>(position[static_cast<size_t>(t)] + by);
      rotation.push_back({p, p, p});
    }
  };
  add_text(std::ssize(rotation), first_token, 0);  // before the first grid
  for (const ExternalRows& r : segment_rows) {
    if (r.cells() == 0) continue;
    const int64_t begin = first_token + r.begin;
    add_text(std::ssize(rotation), begin, shift.back());
    const int64_t start = position[static_cast<size_t>(begin)] - r.first + shift.back();
    for (int64_t cell = r.first; cell < r.first + r.count; ++cell)
      rotation.push_back({static_cast<int32_t>(start),
                          static_cast<int32_t>(start + cell / r.grid_columns),
                          static_cast<int32_t>(start + cell % r.grid_columns)});
    if (ends_grid(r)) shift.back() += shift_of_grid(r);
  }
  add_text(std::ssize(rotation), num_tokens(), shift.back());
}

void Forest::append_open(int64_t first_token, std::span<const ExternalRows> segment_rows) {
  const bool any = std::ranges::any_of(segment_rows, &ExternalRows::open);
  if (!any && open.empty()) return;
  for (int64_t t = std::ssize(open); t < num_tokens(); ++t) {
    const int64_t p = position[static_cast<size_t>(t)];
    open.push_back({p, p + 1});
  }
  for (const ExternalRows& r : segment_rows) {
    if (!r.open) continue;
    const auto begin = static_cast<size_t>(first_token + r.begin);
    const OpenSpan span{position[begin], position[begin] + r.count};
    std::fill_n(open.begin() + static_cast<std::ptrdiff_t>(begin), r.count, span);
  }
}

std::shared_ptr<Forest> forest_of(std::span<const std::vector<int32_t>> segments,
                                  std::span<const int64_t> parent) {
  auto forest = std::make_shared<Forest>();
  std::vector<int64_t> open;  // the last segment's ancestors and itself, the root first
  const auto close_below = [&](int64_t segment, int64_t end) {
    for (; !open.empty() && open.back() != segment; open.pop_back())
      forest->subtree_end[static_cast<size_t>(open.back())] = end;
  };
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t s = static_cast<int64_t>(i), above = parent[i];
    check<DataError>(!segments[i].empty(), "segment ", s, " is empty");
    close_below(above, s);
    check<DataError>(above == -1 || !open.empty(), "segment ", s, " continues ", above,
                     ", expected -1, the segment before or its ancestor (depth first)");
    open.push_back(s);
    int64_t position = 0;
    if (above >= 0) {
      const int64_t end = forest->segment_start[static_cast<size_t>(above) + 1];
      position = forest->position[static_cast<size_t>(end) - 1] + 1;
    }
    for (const int32_t id : segments[i]) {
      forest->tokens.push_back(id);
      forest->position.push_back(position++);
    }
    forest->segment_start.push_back(forest->num_tokens());
    forest->parent.push_back(above);
    forest->subtree_end.push_back(s + 1);
    forest->shift.push_back(0);
  }
  close_below(-1, std::ssize(segments));
  return forest;
}

std::shared_ptr<Forest> trees_of(const Forest& whole, int64_t begin, int64_t end) {
  auto part = std::make_shared<Forest>();
  const auto slice = [&](const auto& from, auto& to) {
    if (!from.empty()) to.assign(from.begin() + begin, from.begin() + end);
  };
  slice(whole.tokens, part->tokens);
  slice(whole.position, part->position);
  slice(whole.rotation, part->rotation);
  slice(whole.open, part->open);
  const auto& start = whole.segment_start;
  const int64_t first = std::ranges::lower_bound(start, begin) - start.begin(),
                last = std::ranges::lower_bound(start, end) - start.begin();
  for (int64_t s = first; s < last; ++s) {
    const auto i = static_cast<size_t>(s);
    part->segment_start.push_back(std::min(start[i + 1], end) - begin);
    part->parent.push_back(whole.parent[i] < 0 ? -1 : whole.parent[i] - first);
    part->subtree_end.push_back(std::min(whole.subtree_end[i], last) - first);
    part->shift.push_back(whole.shift[i]);
  }
  return part;
}

}  // namespace temper
