// Attention over a token forest (temper/ops/forest.h), and over pages of cached keys and values.
//
// The result of one query token at absolute position p, head h, over the keys j = lo..p of its path
// (lo = 0, or p - window + 1; in an open span up to its end, not p), is defined without reference
// to anything else in the batch:
//   s_j  = Σ_d q[d] k_j[d]       one chain of fused multiply-adds, d ascending; times scale;
//                                soft-capped: cap tanh(s / cap)
//   e_j  = exp(s_j - max_j s_j)
//   l    = Σ_j e_j               sixteen partial sums by (j mod 16), each ascending, joined by a
//                                fixed tree
//   o[d] = (Σ_j e_j v_j[d]) / l  one chain, j ascending
//   lse  = max + log l
// Where a head's values are its keys, v is k.
// So packing, chunking, caching, prefix sharing and threads change no bit. Scores of a block of
// query rows at a time are kept, at most 16 MiB a thread up to 128k keys, never [N, N].
#pragma once

#include <cstdint>

#include "temper/ops/native/kernels/attention/cache_dtype.h"

namespace temper::kernels {

struct AttentionShape {
  int64_t num_heads, num_kv_heads, head_dim;
  double scale;
  double soft_cap = 0;  // 0: none
  int64_t window = 0;   // keys with position > p - window; 0: all
  // Type of the pages of write_pages and attention_cached. The others take k and v as they are.
  CacheDtype cache_dtype = CacheDtype::kFloat32;
  // The pages hold keys alone, which are the values, too. The others get them as k and as v.
  bool values_in_keys = false;
};

// Positions [first, end) that see one another both ways: a token's, or the token's own alone.
struct OpenPositions {
  int64_t first, end;
};

// The forest's arrays, as in temper::Forest.
struct ForestView {
  int64_t num_tokens, num_segments;
  const int64_t* segment_start;
  const int64_t* parent;
  const int64_t* subtree_end;
  const OpenPositions* open = nullptr;  // [N]; null: none are open
};
// Tokens [first, end) of a forest, whose queries are given; keys are those of all its tokens.
struct QueryRange {
  int64_t first, end;
};

// q, out [queries, num_heads, head_dim]; k, v [N, num_kv_heads, head_dim]; lse [queries, num_heads]
// (may be null). Roots start at position 0. T: float, or double (plain loops).
template <class T>
void attention(const AttentionShape& shape, const ForestView& forest, QueryRange queries,
               const T* q, const T* k, const T* v, T* out, T* lse);

// dq, dk, dv are overwritten. The same for any number of threads. dk and dv are those of the
// queries: the bits that all of the forest's give where dout is 0 for the others.
template <class T>
void attention_backward(const AttentionShape& shape, const ForestView& forest, QueryRange queries,
                        const T* q, const T* k, const T* v, const T* out, const T* lse,
                        const T* dout, T* dq, T* dk, T* dv);

// Bytes that attention() and attention_backward() of float32 hold beside their arguments for such a
// forest, on as many threads as OpenMP has: packed pages, and each thread's scores or sums.
struct AttentionMemory {
  int64_t forward, backward;
};
AttentionMemory attention_memory(const AttentionShape& shape, const ForestView& forest);

// The oldest key that a query sees. Of queries one behind the other neither it nor the end of their
// open positions ever decreases.
inline int64_t oldest_seen(int64_t window, int64_t position) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// Pages of keys and values of one layer. A page holds page_tokens() consecutive positions of one
// sequence, aligned to absolute position: for each kv head the keys [head_dim, page_tokens()], then
// the values in panels, or of values_in_keys the keys in panels; page_bytes() bytes of
// AttentionShape::cache_dtype in all.
int64_t page_tokens();
int64_t page_bytes(const AttentionShape& shape);

// One row of the batch whose keys are in pages.
struct CachedQuery {
  void* const* pages;  // pages of the row's sequence, in order of position
  int64_t position;
  OpenPositions open = {position, position + 1};  // no row of values_in_keys is in a longer one
};

// Writes token i's key and value, k, v [N, num_kv_heads, head_dim], into its page. They have been
// rounded to the pages' type (round_to): other values would be truncated. v is not read where
// values_in_keys.
void write_pages(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                 const float* k, const float* v);

// q, out [N, num_heads, head_dim]; lse [N, num_heads] (may be null); every key up to each row's own
// position, or to the end of its open span, is in its pages.
void attention_cached(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                      const float* q, float* out, float* lse = nullptr);

// Takes one more score of each head's softmax in, whose key has no value: out [N, num_heads,
// head_dim] times 1 / (1 + exp(sink - lse)), in double, rounded once; lse becomes that of all.
template <class T>
void join_sinks(const AttentionShape& shape, int64_t num_tokens, const T* sinks, T* out, T* lse);

}  // namespace temper::kernels
