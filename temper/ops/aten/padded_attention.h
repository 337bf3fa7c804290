// Attention of many short rectangles of queries and keys as a few batched products: each rectangle
// is padded to the largest of its batch, and positions say which scores count.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <vector>

#include "temper/ops/layers/attention.h"

namespace temper::ops::aten_impl {

// Positions of padding: no key is in reach of such a query, and no query reaches such a key.
constexpr int64_t kNoQuery = -1, kNoKey = std::numeric_limits<int64_t>::max() / 2;

// B rectangles of up to Lq queries and Lk keys. Rows of queries are distinct, rows of keys are
// except where several queries of a cache share pages.
struct PaddedBatch {
  at::Tensor query, query_position;  // [B, Lq]; padding is any row, at kNoQuery
  at::Tensor open_end;           // [B, Lq], of the queries' open spans; undefined: none are open
  at::Tensor key, key_position;  // [B, Lk]; padding is any row, at kNoKey
  // Which places of [B Lq] and [B Lk] are no padding, undefined where all are none; and their rows.
  at::Tensor query_place, query_row, key_place, key_row;
  bool masked = true;           // false: every query reaches every key
  bool padding_is_any = false;  // rows of padding may hold NaN or infinity
};

// Products of fewer queries are slow: no rectangle is cut into parts below that.
constexpr int64_t kFewestRows = 64;

// Which rectangles of queries and keys (numbers of rows of each) stand in one batch, so that its
// scores are not above `most` numbers and less than half of them is padding. `wide` is the numbers
// that a key takes in memory besides its scores. Indices into `sizes`.
struct RectangleSize {
  int64_t queries, keys;
};
std::vector<std::vector<size_t>> batches_of(const std::vector<RectangleSize>& sizes, int64_t heads,
                                            int64_t wide, int64_t most);

// Attention of the rows query_row: out [n, num_heads, head_dim] and the log-sum-exp [n, num_heads],
// -inf (and out 0) where no key is in reach. q [N, num_heads, head_dim]; k, v [rows, num_kv_heads,
// head_dim], in a cache's type if they lie in one.
struct PaddedResult {
  at::Tensor out, log_sum_exp;
};
PaddedResult padded_attention(const AttentionSpec& spec, const PaddedBatch& batch,
                              const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
// Takes spec.sinks, where there are any, into a result of all keys of its rows, in place.
void join_sinks(const AttentionSpec& spec, PaddedResult& result);

// Heads' vectors, and what the backward pass knows of whole rows: delta = Σ_d dout out.
struct PaddedInputs {
  at::Tensor q, k, v, log_sum_exp, dout, delta;
};
struct PaddedGradients {
  at::Tensor q, k, v;
};
// Adds the gradients of the batch's scores.
void padded_attention_backward(const AttentionSpec& spec, const PaddedBatch& batch,
                               const PaddedInputs& in, PaddedGradients& gradients);

}  // namespace temper::ops::aten_impl
