// How attention over a token forest becomes batched products.
//
// Chains of only children are contracted: such a segment is a continuation of its parent, and both
// are one causal node. As segments are in depth-first order, a node's descendants are the rows
// right behind its own, and nodes of one depth have disjoint ones. So
//   part 0      each node's rows on themselves, causal
//   part d > 0  the rows below each node of depth d - 1 on that node's rows
// cover each pair of a token and one that it attends to exactly once. The parts of a row are joined
// by their log-sum-exp. A part is either batches of padded products, or one call of a flash kernel.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "temper/ops/aten/flash_attention.h"
#include "temper/ops/aten/heads.h"
#include "temper/ops/aten/padded_attention.h"
#include "temper/ops/forest.h"

namespace temper::ops::aten_impl {

// Within a batch all rows of queries are distinct, and so are those of keys: sums over them have
// one order.
using PaddedPart = std::vector<PaddedBatch>;
struct FlashPart {
  FlashBatch batch;
  int64_t farthest = 0;  // the most positions between a query and one of its keys
};

// The forest's tokens [first, end), whose queries are at hand: rows of queries count from `first`.
struct QueryRows {
  int64_t first, end;
  bool operator==(const QueryRows&) const = default;
};

class ForestPlan {
 public:
  ForestPlan(const Forest& forest, QueryRows queries, at::Device device);
  // Whether it is what a plan of this forest would be.
  bool is_of(const Forest& forest, QueryRows queries, at::Device device) const;

  // Tables and parts that operations share, made at the first request. From any thread.
  RotaryRows rotary(const RotaryTable& table) const;  // of all tokens
  int64_t parts() const { return depths_; }
  // Of a layer whose queries see what the spec says, open spans or none.
  std::shared_ptr<const PaddedPart> padded_part(int64_t depth, const AttentionSpec& spec) const;
  // Whether parts of such a layer are cut by open spans.
  bool opens(const AttentionSpec& spec, int64_t depth) const {
    return depth == 0 && !spec.causal && !open_.empty();
  }
  std::shared_ptr<const FlashPart> flash_part(int64_t depth) const;

 private:
  // Rows [first, end) and those below it [end, below_end).
  struct Node {
    int64_t first, end, below_end, depth;
  };
  // Query rows on key rows.
  struct Pair {
    int64_t query, query_end, key, key_end;
    bool causal;
  };
  struct Rectangle {
    int64_t query, queries, key, keys;
  };
  void find_nodes(const Forest& forest);
  std::vector<Pair> pairs(int64_t depth) const;
  // What make_padded and its parts ask of a layer.
  struct Sight {
    int64_t window, heads;
    bool open;
    bool operator==(const Sight&) const = default;
  };
  void cut(const Pair& pair, const Sight& sight, std::vector<std::vector<Rectangle>>& rounds) const;
  PaddedBatch batch(const std::vector<Rectangle>& rectangles, bool masked, bool open) const;
  PaddedPart make_padded(int64_t depth, const Sight& sight) const;
  FlashPart make_flash(int64_t depth) const;

  struct KnownPart {
    int64_t depth;
    Sight sight;
    std::shared_ptr<const PaddedPart> part;
  };
  at::Device device_;
  QueryRows queries_;
  std::vector<int64_t> host_position_, segment_start_, parent_;  // the forest's
  std::vector<OpenSpan> open_;
  std::vector<Node> nodes_;
  int64_t depths_ = 0;
  at::Tensor position_;
  mutable std::mutex mutex_;
  mutable std::vector<KnownPart> padded_;
  mutable std::vector<std::shared_ptr<const FlashPart>> flash_;  // by depth; null: not asked for
  mutable std::vector<std::pair<RotaryTable, RotaryRows>> rotary_;
};

// Kept in the forest.
std::shared_ptr<const ForestPlan> plan_of(const Forest& forest, QueryRows queries,
                                          at::Device device);

}  // namespace temper::ops::aten_impl
