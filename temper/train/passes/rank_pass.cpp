#include "temper/train/passes/rank_pass.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"

namespace temper::train {
namespace {

// By rank the indices of the rows that are its tokens'.
std::vector<std::vector<int64_t>> owners(const std::vector<int64_t>& rows,
                                         const std::vector<std::vector<nn::TokenRange>>& ranges,
                                         int64_t tokens) {
  std::vector<int> rank_of(static_cast<size_t>(tokens));
  for (size_t r = 0; r < ranges.size(); ++r)
    for (const nn::TokenRange& range : ranges[r])
      std::fill(rank_of.begin() + range.begin, rank_of.begin() + range.end, static_cast<int>(r));
  std::vector<std::vector<int64_t>> places(ranges.size());
  for (size_t i = 0; i < rows.size(); ++i)
    places[static_cast<size_t>(rank_of.at(static_cast<size_t>(rows[i])))].push_back(
        static_cast<int64_t>(i));
  return places;
}

nn::DividedRows divided(const std::vector<int64_t>& rows, const Forest& forest,
                        const std::shared_ptr<dist::Group>& ranks) {
  return {ranks, owners(rows, nn::divide_tokens(forest, ranks->size()), forest.num_tokens())};
}

template <class T>
std::vector<T> taken(const std::vector<T>& from, const std::vector<int64_t>& places) {
  std::vector<T> out;
  if (from.empty()) return out;
  for (const int64_t place : places) out.push_back(from.at(static_cast<size_t>(place)));
  return out;
}

// The rank's own of `all`; where it has none, the first: heads compute something on every rank, and
// what comes of it is left out when values are gathered.
std::vector<int64_t> own_or_first(const nn::DividedRows& rows) {
  if (!rows.own().empty() || rows.size() == 0) return rows.own();
  return {0};
}

// Tokens of the whole as places among the own ones.
std::vector<int64_t> own_places(const std::vector<int64_t>& rows,
                                const std::vector<int64_t>& tokens) {
  std::vector<int64_t> out;
  for (const int64_t row : rows) {
    const auto found = std::ranges::lower_bound(tokens, row);
    out.push_back(found != tokens.end() && *found == row ? found - tokens.begin() : 0);
  }
  return out;
}

std::shared_ptr<const ops::KeptTokens> kept_of(const ops::KeptTokens& all,
                                               const std::vector<int64_t>& targets) {
  auto own = std::make_shared<ops::KeptTokens>();
  own->offset.assign(1, 0);
  own->id.clear();
  for (const int64_t target : targets) {
    const auto i = static_cast<size_t>(target);
    own->id.insert(own->id.end(), all.id.begin() + all.offset[i],
                   all.id.begin() + all.offset[i + 1]);
    own->offset.push_back(static_cast<int64_t>(own->id.size()));
  }
  return own;
}

}  // namespace

OwnPass::OwnPass(const ForwardPass& whole, std::shared_ptr<dist::Group> ranks)
    : share(std::make_shared<nn::TokenShare>(whole.forest, ranks)),
      targets(divided(whole.row_M, *whole.forest, ranks)),
      scored(divided(whole.scored_row_K, *whole.forest, ranks)) {
  pass.forest = std::make_shared<Forest>(*share->own());
  const std::vector<int64_t> own_M = own_or_first(targets), own_K = own_or_first(scored);
  pass.row_M = own_places(taken(whole.row_M, own_M), share->tokens());
  pass.target_M = taken(whole.target_M, own_M);
  pass.scored_row_K = own_places(taken(whole.scored_row_K, own_K), share->tokens());
  pass.scored_tag_K = taken(whole.scored_tag_K, own_K);
  pass.dropout.token = taken(whole.dropout.token, share->tokens());
  pass.dropout.row_tokens = taken(whole.dropout.row_tokens, share->tokens());
}

RankPass::RankPass(const models::Model& model, const ForwardPass& pass) : whole_(pass) {
  const std::shared_ptr<dist::Group>& ranks = model.token_ranks;
  if (!ranks || ranks->size() == 1) return;
  check(pass.adapters.size() <= 1, "a pass of several adapters is not divided among ranks");
  if (!pass.own || pass.own->share->whole() != pass.forest ||
      pass.own->targets.size() != pass.num_targets())
    pass.own = std::make_shared<OwnPass>(pass, ranks);
  own_ = pass.own;
  ForwardPass& own = own_->pass;
  own.kept = pass.kept ? kept_of(*pass.kept, own_or_first(own_->targets)) : nullptr;
  own.dropout.seed = pass.dropout.seed;
  own.dropout.step = pass.dropout.step;
  own.dropout.noise_alpha = pass.dropout.noise_alpha;
  own.routers = own_->share->has_none() ? nullptr : pass.routers;
  own.shadow = pass.shadow;
  own.inputs = pass.inputs;
}

nn::Context RankPass::context(const PassOptions& options) const {
  nn::Context context = context_of(pass(), options);
  if (own_) context.share = own_->share;
  return context;
}

at::Tensor RankPass::of_targets(const at::Tensor& own_M) const {
  return own_ && own_M.defined() ? own_->targets.gather(own_M, true) : own_M;
}

at::Tensor RankPass::at_own_targets(const at::Tensor& all_M) const {
  if (!own_ || !all_M.defined()) return all_M;
  const at::Tensor own = at::tensor(own_or_first(own_->targets), at::kLong);
  return all_M.index_select(0, own.to(all_M.device()));
}

at::Tensor RankPass::of_scored(const at::Tensor& own_K) const {
  return own_ && own_K.defined() ? own_->scored.gather(own_K, true) : own_K;
}

}  // namespace temper::train
