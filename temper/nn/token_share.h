// Context parallelism: the tokens of a forward pass divided among ranks that all hold the whole
// model and are given the same rows.
//
// What a rank owns. A stretch of the forest (a long segment, or a run of short ones, one behind the
// other) is cut into 2R chunks of as many tokens each, and rank r of R has chunks r and 2R-1-r: as
// many tokens as any other rank, and as much causal attention, since a chunk that sees few keys
// goes with one that sees many (the zigzag of Brandon et al., arXiv 2311.09431, and of Llama 3,
// arXiv 2407.21783, section 3.3.2). All ranks compute the same division.
//
// What is computed where. Whatever treats each token alone (embedding, norms, linear layers, MLP,
// experts, head, dropout) runs over the rank's own tokens, with their positions in their rows.
// Attention gathers keys and values of all tokens, in the forest's order, and computes the rank's
// own queries. Layers that carry a state divide their heads (nn/column_share.h). Log-probabilities
// of the targets are gathered, so that each rank has the pass's loss and its gradient, as one rank
// would.
//
// Which sums have which order. A token's numbers have the bits of one rank, as nothing in them
// depends on which tokens are computed beside it; so has the loss. The gradient of a key or a value
// is the sum of what the queries of each rank give, by rank, and within a rank by chunk; that of a
// parameter the sum over the ranks' tokens, by rank. So gradients are those of one rank up to
// rounding, and a run on a given mesh repeats its bits. (One rank's order would be a chain through
// the chunks: each would wait for the one before, and ranks would take turns.)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "temper/dist/group.h"
#include "temper/ops/forest.h"
#include "temper/ops/layers/attention.h"

namespace temper::nn {

struct TokenRange {
  int64_t begin, end;  // tokens of a forest
  bool operator==(const TokenRange&) const = default;
};
// By rank the ranges that are its own: ascending, disjoint, and all together the forest. A rank has
// none where there are fewer tokens than ranks.
std::vector<std::vector<TokenRange>> divide_tokens(const Forest& forest, int ranks);

// Rows of a tensor of which each rank has some.
class DividedRows {
 public:
  // By rank the places of its rows among all, ascending.
  DividedRows(std::shared_ptr<dist::Group> ranks, std::vector<std::vector<int64_t>> places);

  int64_t size() const { return all_; }
  int64_t most() const { return most_; }  // rows of the rank that has most
  const std::vector<int64_t>& own() const { return places_[static_cast<size_t>(rank_)]; }
  // x [n, ..] of this rank's rows (more rows than its own are left out) -> [N, ..]. Differentiable:
  // the gradient of a row is the sum of what the ranks have for it, by rank, or where all of them
  // have the same (`alike`) that.
  at::Tensor gather(const at::Tensor& x, bool alike) const;
  // The ranks' parts, each of most() rows, one behind the other [R * most(), ..] -> the rows in
  // their order [N, ..], and the other way, with zeros where a part has fewer.
  at::Tensor of_parts(const at::Tensor& parts) const;
  at::Tensor to_parts(const at::Tensor& all) const;

 private:
  at::Tensor all_of(const at::Tensor& x) const;
  at::Tensor sum_of(const at::Tensor& dall, int64_t rows) const;

  std::shared_ptr<dist::Group> ranks_;
  int rank_;
  std::vector<std::vector<int64_t>> places_;
  int64_t all_ = 0, most_ = 0;  // most_: rows of a rank
  at::Tensor index_;            // [N] of a row among the ranks' parts, each of `most_` rows
};

class TokenShare {
 public:
  // Of the rank in the group. All of them make one of the same forest, and make the same calls.
  TokenShare(std::shared_ptr<const Forest> whole, std::shared_ptr<dist::Group> ranks);

  const std::shared_ptr<const Forest>& whole() const { return whole_; }
  // The tokens of this rank, each range of them a root: for what treats each token alone. Where the
  // rank has none, the forest's first one, which counts nowhere.
  const std::shared_ptr<const Forest>& own() const { return own_; }
  bool has_none() const { return rows_.own().empty(); }
  // All tokens, of which each rank has its own.
  const DividedRows& rows() const { return rows_; }
  // The tokens of own() among those of whole(), ascending.
  const std::vector<int64_t>& tokens() const { return tokens_; }
  const std::shared_ptr<dist::Group>& ranks() const { return ranks_; }

  // x [n, W] of the own tokens -> [N, W] of all; differentiable, as attention().
  at::Tensor gather(const at::Tensor& x) const { return rows_.gather(x, false); }
  // ops::attention() of the own tokens; q, k and v are theirs, the table is that of whole().
  at::Tensor attention(const ops::AttentionSpec& spec, const ops::RotaryTable& rotary,
                       const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;

 private:
  std::shared_ptr<const Forest> whole_, own_;
  std::shared_ptr<dist::Group> ranks_;
  DividedRows rows_;
  std::vector<int64_t> tokens_;
  std::vector<ops::QueryPiece> pieces_;
};

}  // namespace temper::nn
