#include "temper/ops/aten/forest_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "temper/ops/aten/common.h"
#include "temper/ops/aten/upload.h"

namespace temper::ops::aten_impl {
namespace {

// A causal rectangle computes its scores above the diagonal for nothing: it is cut into rows.
constexpr int64_t kCausalRows = 512;

}  // namespace

ForestPlan::ForestPlan(const Forest& forest, QueryRows queries, at::Device device)
    : device_(device),
      queries_(queries),
      host_position_(forest.position),
      segment_start_(forest.segment_start),
      parent_(forest.parent),
      open_(forest.open) {
  find_nodes(forest);
  for (const Node& node : nodes_) depths_ = std::max(depths_, node.depth + 1);
  flash_.resize(static_cast<size_t>(depths_));
  Upload upload;
  upload.add(position_, host_position_, {forest.num_tokens()});
  upload.to(device);
}

bool ForestPlan::is_of(const Forest& forest, QueryRows queries, at::Device device) const {
  return device_ == device && queries_ == queries && parent_ == forest.parent &&
         segment_start_ == forest.segment_start && host_position_ == forest.position &&
         open_ == forest.open;
}

void ForestPlan::find_nodes(const Forest& forest) {
  const auto count = static_cast<size_t>(forest.num_segments());
  std::vector<int64_t> children(count, 0);
  for (const int64_t p : forest.parent)
    if (p >= 0) ++children[static_cast<size_t>(p)];
  std::vector<size_t> node_of(count);
  for (size_t s = 0; s < count; ++s) {
    const int64_t parent = forest.parent[s], end = forest.segment_start[s + 1];
    const size_t above = parent < 0 ? 0 : node_of[static_cast<size_t>(parent)];
    if (parent >= 0 && children[static_cast<size_t>(parent)] == 1) {
      nodes_[above].end = end;
      node_of[s] = above;
      continue;
    }
    node_of[s] = nodes_.size();
    const auto below = static_cast<size_t>(forest.subtree_end[s]);
    nodes_.push_back({forest.segment_start[s], end, forest.segment_start[below],
                      parent < 0 ? 0 : nodes_[above].depth + 1});
  }
}

std::vector<ForestPlan::Pair> ForestPlan::pairs(int64_t depth) const {
  std::vector<Pair> out;
  const auto add = [&](int64_t first, int64_t end, const Node& keys, bool causal) {
    first = std::max(first, queries_.first);
    end = std::min(end, queries_.end);
    if (first < end) out.push_back({first, end, keys.first, causal ? end : keys.end, causal});
  };
  for (const Node& node : nodes_) {
    if (depth == 0)
      add(node.first, node.end, node, true);
    else if (node.depth == depth - 1)
      add(node.end, node.below_end, node, false);
  }
  return out;
}

// Cuts a pair into rectangles of rows. The i-th of each pair goes to round i, so that no key is
// twice in a round. Keys that are before every window, or behind every query, are left out.
void ForestPlan::cut(const Pair& pair, const Sight& sight,
                     std::vector<std::vector<Rectangle>>& rounds) const {
  const auto position = [&](int64_t row) { return host_position_[static_cast<size_t>(row)]; };
  // Of a row's keys of its own node.
  const auto end_of = [&](int64_t i) {
    return sight.open ? open_[static_cast<size_t>(i)].end : position(i) + 1;
  };
  const int64_t fits = scratch_numbers(device_) / (sight.heads * (pair.key_end - pair.key));
  const int64_t most = std::max(kFewestRows, pair.causal ? std::min(fits, kCausalRows) : fits);
  size_t round = 0;
  for (int64_t row = pair.query; row < pair.query_end; row += most) {
    const int64_t end = std::min(row + most, pair.query_end);
    Rectangle r{row, end - row, pair.key, (pair.causal ? end : pair.key_end) - pair.key};
    if (pair.causal) r.keys += end_of(end - 1) - position(end - 1) - 1;
    if (sight.window > 0) {
      int64_t earliest = position(row);
      for (int64_t i = row + 1; i < end; ++i) earliest = std::min(earliest, position(i));
      const int64_t out_of_reach = earliest - sight.window + 1 - position(pair.key);
      const int64_t skipped = std::clamp<int64_t>(out_of_reach, 0, r.keys);
      r.key += skipped;
      r.keys -= skipped;
    }
    if (r.keys == 0) continue;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round++].push_back(r);
  }
}

PaddedBatch ForestPlan::batch(const std::vector<Rectangle>& rectangles, bool masked,
                              bool open) const {
  int64_t queries = 0, keys = 0;
  for (const Rectangle& r : rectangles) {
    queries = std::max(queries, r.queries);
    keys = std::max(keys, r.keys);
  }
  PaddedRows query(queries, kNoQuery), key(keys, kNoKey);
  PaddedSpans spans(queries);
  for (const Rectangle& r : rectangles) {
    if (open) spans.add(r.queries, open_.data() + r.query);
    query.add(r.query - queries_.first, r.queries, host_position_.data() + r.query);
    key.add(r.key, r.keys, host_position_.data() + r.key);
  }
  PaddedBatch b;
  b.masked = masked || query.padded() || key.padded();
  Upload upload;
  query.upload_to(upload, b.query, b.query_position, b.query_place, b.query_row);
  key.upload_to(upload, b.key, b.key_position, b.key_place, b.key_row);
  if (open) spans.upload_to(upload, b.open_end);
  upload.to(device_);
  return b;
}

PaddedPart ForestPlan::make_padded(int64_t depth, const Sight& sight) const {
  std::vector<std::vector<Rectangle>> rounds;
  for (const Pair& pair : pairs(depth)) cut(pair, sight, rounds);
  PaddedPart out;
  for (const std::vector<Rectangle>& round : rounds) {
    std::vector<RectangleSize> sizes;
    for (const Rectangle& r : round) sizes.push_back({r.queries, r.keys});
    for (const std::vector<size_t>& indices :
         batches_of(sizes, sight.heads, 0, scratch_numbers(device_))) {
      std::vector<Rectangle> together;
      for (const size_t i : indices) together.push_back(round[i]);
      out.push_back(batch(together, depth == 0 || sight.window > 0, sight.open));
    }
  }
  return out;
}

FlashPart ForestPlan::make_flash(int64_t depth) const {
  FlashPart part;
  FlashBatch& b = part.batch;
  b.causal = depth == 0;
  std::vector<int64_t> query, key, query_start{0}, key_start{0};
  const auto add = [](int64_t first, int64_t end, std::vector<int64_t>& rows,
                      std::vector<int64_t>& start, int64_t& longest) {
    for (int64_t row = first; row < end; ++row) rows.push_back(row);
    start.push_back(static_cast<int64_t>(rows.size()));
    longest = std::max(longest, end - first);
  };
  for (const Pair& pair : pairs(depth)) {
    add(pair.query - queries_.first, pair.query_end - queries_.first, query, query_start,
        b.longest_query);
    add(pair.key, pair.key_end, key, key_start, b.longest_key);
    const auto first = host_position_.begin();
    part.farthest =
        std::max(part.farthest, *std::max_element(first + pair.query, first + pair.query_end) -
                                    host_position_[static_cast<size_t>(pair.key)]);
  }
  Upload upload;
  // Nodes are in the order of their rows, and have all of them.
  if (depth > 0) upload.add(b.query_row, query, {std::ssize(query)});
  if (depth > 0 || std::ssize(key) < std::ssize(host_position_))
    upload.add(b.key_row, key, {std::ssize(key)});
  at::Tensor starts;
  const int64_t count = std::ssize(query_start);
  query_start.insert(query_start.end(), key_start.begin(), key_start.end());
  upload.add(starts, query_start, {2, count});
  upload.to(device_);
  starts = starts.to(at::kInt);
  b.query_start = starts[0];
  b.key_start = starts[1];
  return part;
}

RotaryRows ForestPlan::rotary(const RotaryTable& table) const {
  if (table.by_token) return rotary_rows(table, position_);  // each call has its own
  const std::lock_guard lock(mutex_);
  for (const auto& [from, rows] : rotary_)
    if (is_same(from, table)) return rows;
  rotary_.emplace_back(table, rotary_rows(table, position_));
  return rotary_.back().second;
}

std::shared_ptr<const PaddedPart> ForestPlan::padded_part(int64_t depth,
                                                          const AttentionSpec& spec) const {
  const Sight sight{spec.window, spec.num_heads, opens(spec, depth)};
  const std::lock_guard lock(mutex_);
  for (const KnownPart& known : padded_)
    if (known.depth == depth && known.sight == sight) return known.part;
  padded_.push_back({depth, sight, std::make_shared<const PaddedPart>(make_padded(depth, sight))});
  return padded_.back().part;
}

std::shared_ptr<const FlashPart> ForestPlan::flash_part(int64_t depth) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const FlashPart>& part = flash_[static_cast<size_t>(depth)];
  if (!part) part = std::make_shared<const FlashPart>(make_flash(depth));
  return part;
}

std::shared_ptr<const ForestPlan> plan_of(const Forest& forest, QueryRows queries,
                                          at::Device device) {
  const auto kept = std::static_pointer_cast<const ForestPlan>(std::atomic_load(&forest.derived));
  if (kept && kept->is_of(forest, queries, device)) return kept;
  auto plan = std::make_shared<const ForestPlan>(forest, queries, device);
  std::atomic_store(&forest.derived, std::shared_ptr<const void>(plan));
  return plan;
}

}  // namespace temper::ops::aten_impl
