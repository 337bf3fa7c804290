#include "temper/nn/token_share.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "temper/base/error.h"
#include "temper/nn/context.h"
#include "temper/ops/autograd.h"

namespace temper::nn {
namespace {

// Tokens of a chunk below which a segment is not cut by itself, but with its neighbours: attention
// prepares the keys once for each chunk of queries.
constexpr int64_t kLeastChunk = 64;

// Cuts tokens [begin, end) into 2R chunks, of which each rank takes two.
void deal(TokenRange stretch, int64_t ranks, std::vector<std::vector<TokenRange>>& to) {
  const int64_t chunks = 2 * ranks, length = stretch.end - stretch.begin;
  for (int64_t c = 0; c < chunks; ++c) {
    const TokenRange chunk{stretch.begin + length * c / chunks,
                           stretch.begin + length * (c + 1) / chunks};
    if (chunk.begin == chunk.end) continue;
    std::vector<TokenRange>& of_rank = to[static_cast<size_t>(std::min(c, chunks - 1 - c))];
    if (!of_rank.empty() && of_rank.back().end == chunk.begin)
      of_rank.back().end = chunk.end;
    else
      of_rank.push_back(chunk);
  }
}

std::vector<std::vector<int64_t>> places_of(const std::vector<std::vector<TokenRange>>& ranges) {
  std::vector<std::vector<int64_t>> places(ranges.size());
  for (size_t r = 0; r < ranges.size(); ++r)
    for (const TokenRange& range : ranges[r])
      for (int64_t token = range.begin; token < range.end; ++token) places[r].push_back(token);
  return places;
}

std::vector<TokenRange> own_ranges(const Forest& forest, const dist::Group& ranks) {
  std::vector<TokenRange> own =
      divide_tokens(forest, ranks.size())[static_cast<size_t>(ranks.rank())];
  if (own.empty()) own.push_back({0, 1});
  return own;
}

// The tokens of the ranges; structure, rotation and open spans are the whole forest's to know.
std::shared_ptr<const Forest> forest_of(const Forest& whole,
                                        const std::vector<TokenRange>& ranges) {
  auto own = std::make_shared<Forest>();
  for (const TokenRange& range : ranges) {
    const int64_t first = own->num_tokens();
    own->tokens.insert(own->tokens.end(), whole.tokens.begin() + range.begin,
                       whole.tokens.begin() + range.end);
    own->position.insert(own->position.end(), whole.position.begin() + range.begin,
                         whole.position.begin() + range.end);
    own->segment_start.push_back(own->num_tokens());
    own->parent.push_back(-1);
    own->subtree_end.push_back(own->num_segments());
    own->shift.push_back(0);
    for (ExternalRows rows : rows_within(whole.rows, range.begin, range.end - range.begin)) {
      rows.begin += first;
      own->rows.push_back(std::move(rows));
    }
  }
  return own;
}

// The own queries' keys begin where their first tree does, and end with them; with open spans,
// where the last tree does.
std::vector<ops::QueryPiece> pieces_of(const Forest& whole, const std::vector<TokenRange>& ranges) {
  std::vector<ops::QueryPiece> pieces;
  size_t segment = 0;
  for (const TokenRange& range : ranges) {
    while (whole.segment_start[segment + 1] <= range.begin) ++segment;
    size_t root = segment;
    while (whole.parent[root] >= 0) root = static_cast<size_t>(whole.parent[root]);
    const int64_t begin = whole.segment_start[root],
                  end = whole.open.empty() ? range.end : whole.num_tokens();
    pieces.push_back(
        {trees_of(whole, begin, end), begin, range.begin - begin, range.end - range.begin});
  }
  return pieces;
}

// Rows of x. LibTorch's index_select has no form for tensors without values (plans of memory).
at::Tensor rows_at(const at::Tensor& x, const at::Tensor& index) {
  if (!x.is_meta()) return x.index_select(0, index.to(x.device()));
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = index.size(0);
  return at::empty(shape, x.options());
}

}  // namespace

const std::shared_ptr<const Forest>& Context::whole() const {
  return share ? share->whole() : forest;
}

std::vector<std::vector<TokenRange>> divide_tokens(const Forest& forest, int ranks) {
  std::vector<std::vector<TokenRange>> ranges(static_cast<size_t>(ranks));
  TokenRange run{0, 0};  // of short segments
  const auto end_run = [&] {
    if (run.begin < run.end) deal(run, ranks, ranges);
  };
  for (size_t s = 0; s + 1 < forest.segment_start.size(); ++s) {
    const TokenRange segment{forest.segment_start[s], forest.segment_start[s + 1]};
    if (segment.end - segment.begin >= 2 * ranks * kLeastChunk) {
      end_run();
      deal(segment, ranks, ranges);
      run.begin = segment.end;
    }
    run.end = segment.end;
  }
  end_run();
  return ranges;
}

DividedRows::DividedRows(std::shared_ptr<dist::Group> ranks,
                         std::vector<std::vector<int64_t>> places)
    : ranks_(std::move(ranks)), rank_(ranks_->rank()), places_(std::move(places)) {
  for (const std::vector<int64_t>& of_rank : places_) {
    all_ += std::ssize(of_rank);
    most_ = std::max(most_, std::ssize(of_rank));
  }
  index_ = at::empty({all_}, at::kLong);
  int64_t* const index = index_.mutable_data_ptr<int64_t>();
  for (size_t r = 0; r < places_.size(); ++r)
    for (size_t i = 0; i < places_[r].size(); ++i)
      index[places_[r][i]] = static_cast<int64_t>(r) * most_ + static_cast<int64_t>(i);
}

at::Tensor DividedRows::all_of(const at::Tensor& x) const {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = most_;
  at::Tensor part = at::zeros(shape, x.options());
  const int64_t rows = std::ssize(own());
  part.narrow(0, 0, rows).copy_(x.narrow(0, 0, rows));
  shape[0] = most_ * ranks_->size();
  at::Tensor parts = at::empty(shape, x.options());
  if (parts.numel() > 0) ranks_->all_gather(part, parts);
  return of_parts(parts);
}

at::Tensor DividedRows::of_parts(const at::Tensor& parts) const { return rows_at(parts, index_); }

at::Tensor DividedRows::to_parts(const at::Tensor& all) const {
  std::vector<int64_t> shape = all.sizes().vec();
  shape[0] = most_ * ranks_->size();
  at::Tensor parts = at::zeros(shape, all.options());
  parts.index_copy_(0, index_.to(all.device()), all);
  return parts;
}

at::Tensor DividedRows::sum_of(const at::Tensor& dall, int64_t rows) const {
  const at::Tensor parts = to_parts(dall);
  std::vector<int64_t> shape = dall.sizes().vec();
  shape[0] = most_;
  at::Tensor part = at::empty(shape, dall.options());
  if (parts.numel() > 0) ranks_->reduce_scatter_sum(parts, part);
  if (rows == most_ && std::ssize(own()) == rows) return part;
  shape[0] = rows;
  at::Tensor own_rows = at::zeros(shape, dall.options());
  own_rows.narrow(0, 0, std::ssize(own())).copy_(part.narrow(0, 0, std::ssize(own())));
  return own_rows;
}

at::Tensor DividedRows::gather(const at::Tensor& x, bool alike) const {
  const int64_t rows = x.size(0);
  check(rows >= std::ssize(own()), "a rank has ", rows, " rows of ", std::ssize(own()));
  ops::Recording call({x});
  return call.output(all_of(x), [this_ = *this, rows, alike](const ops::Gradients& d) {
    if (!alike) return ops::Tensors{this_.sum_of(d[0], rows)};
    std::vector<int64_t> shape = d[0].sizes().vec();
    shape[0] = rows;
    at::Tensor own_rows = at::zeros(shape, d[0].options());
    const at::Tensor places = at::tensor(this_.own(), at::kLong);
    own_rows.narrow(0, 0, places.size(0)).copy_(rows_at(d[0], places));
    return ops::Tensors{own_rows};
  });
}

TokenShare::TokenShare(std::shared_ptr<const Forest> whole, std::shared_ptr<dist::Group> ranks)
    : whole_(std::move(whole)),
      ranks_(std::move(ranks)),
      rows_(ranks_, places_of(divide_tokens(*whole_, ranks_->size()))) {
  const std::vector<TokenRange> ranges = own_ranges(*whole_, *ranks_);
  own_ = forest_of(*whole_, ranges);
  tokens_ = places_of({ranges})[0];
  pieces_ = pieces_of(*whole_, ranges);
}

at::Tensor TokenShare::attention(const ops::AttentionSpec& spec, const ops::RotaryTable& rotary,
                                 const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v) const {
  const bool two = v.defined();
  const at::Tensor all = gather(two ? at::cat({k, v}, 1) : k);
  const auto part = [&](int64_t from, int64_t width) {
    return all.narrow(1, from, width).contiguous();
  };
  if (!two) return ops::attention(spec, rotary, pieces_, q, all, {});
  const int64_t width = k.size(1);
  return ops::attention(spec, rotary, pieces_, q, part(0, width), part(width, v.size(1)));
}

}  // namespace temper::nn
