// Attention over a token forest: q/k norm, rotary embedding and attention as one function, which
// keeps only q, k and v as projected, its output and the log-sum-exp, and computes the rest again
// in the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "temper/ops/forest.h"
#include "temper/ops/formats.h"
#include "temper/ops/weight.h"

namespace temper::ops {

// cos and sin of every position and frequency, [positions, rotated / 2]: the first `rotated`
// features of each head are rotated, the others stay. Undefined: nothing is rotated.
struct RotaryTable {
  at::Tensor cos, sin;
  bool interleaved = false;  // feature 2i is paired with 2i + 1, not i with i + rotated / 2
  at::Tensor query_scale =
      {};                 // [positions]: queries are multiplied by it at last; undefined: by 1
  bool by_token = false;  // rows are those of the forest's tokens, not of positions
};

struct AttentionSpec {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  double scale = 1;     // scores are q·k times it
  double soft_cap = 0;  // then cap tanh(score / cap) (Gemma 2); 0: no cap
  bool causal = false;  // open rows of the forest are as others: a token sees none behind it
  int64_t window = 0;   // sliding window: a token sees itself and window - 1 positions before;
                        // 0: all positions before
  at::Tensor q_norm, k_norm;  // RMSNorm weights [head_dim] (Qwen 3, Gemma 3), or undefined
  // Values are the keys as scores read them, normalized and rotated: v is undefined, and a cache
  // holds each key once (latent attention).
  bool values_in_keys = false;
  double norm_eps = 0;         // added to the mean square in these norms
  bool norm_one_plus = false;  // they multiply by 1 + weight (Gemma)
  bool norm_rotated = false;   // they come after rotary embedding, not before (Hunyuan)
  // [num_heads]: of each head's softmax one more score, whose key has no value (gpt-oss); or
  // undefined.
  at::Tensor sinks = {};
  // Keys and values are rounded to it before anything reads them (float64: never), so that they can
  // be cached in it; gradients pass as if they were not (straight-through, Bengio et al., arXiv
  // 1308.3432).
  CacheDtype cache_dtype = CacheDtype::kFloat32;
  // Not kExact: a backend may round queries, keys, values and gradients to bfloat16 where its
  // device is quicker with it. The native one never does.
  Arithmetic arithmetic = Arithmetic::kExact;
};

// q [n, num_heads * head_dim] of the forest's tokens [first, first + n), k and v [N, num_kv_heads *
// head_dim] of all, before norm and rotary embedding -> [n, num_heads * head_dim]. Roots of the
// forest start at position 0. Differentiable in q, k, v, the norms' weights and the sinks. v is
// undefined where values are in keys.
//
// Ranges that cover the forest give its rows: out and dq bit for bit on the native backend. dk and
// dv of a range are what all queries give with a dout of 0 outside of it, bit for bit, so their sum
// over ranges is the whole's up to rounding; and so are the sums of the norms' and sinks'
// gradients.
at::Tensor attention(const AttentionSpec& spec, const RotaryTable& rotary,
                     const std::shared_ptr<const Forest>& forest, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v, int64_t first = 0);

// Queries of one range of a forest's tokens, which see some of the keys.
struct QueryPiece {
  std::shared_ptr<const Forest> forest;  // of the keys [first_key, first_key + its tokens)
  int64_t first_key = 0;
  int64_t first = 0, count = 0;  // the queries are those of so many of its tokens from `first` on
};
// Pieces one behind the other: q [their counts, ..] -> as much; k and v [N, ..] of all keys, a
// table by token is of these. The gradients of keys, values, norms' weights and sinks are sums over
// the pieces, in their order.
at::Tensor attention(const AttentionSpec& spec, const RotaryTable& rotary,
                     const std::vector<QueryPiece>& pieces, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v);

}  // namespace temper::ops
