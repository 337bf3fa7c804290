// Queries of one path, as attention takes them. Included once for each SIMD target.
#if defined(TEMPER_ATTENTION_QUERIES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ATTENTION_QUERIES_INL_H
#undef TEMPER_ATTENTION_QUERIES_INL_H
#else
#define TEMPER_ATTENTION_QUERIES_INL_H
#endif

#include "temper/ops/native/kernels/attention/attention_pages-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// Queries that stand one after another on one path, and the heads that share a kv head. B: what
// the pages hold.
template <class B>
struct QueryBlock {
  int64_t count, heads;
  int64_t first_position;  // position of the first query
  const float* q;          // [count, heads, head_dim], `stride` floats between queries
  float* out;              // as q
  int64_t stride;
  float* lse;  // [count, heads], `lse_stride` between queries; or null
  int64_t lse_stride;
  const B* const* pages;                // pages of the path, from position 0
  const OpenPositions* open = nullptr;  // [count]; null: none are open

  int64_t end(int64_t query) const {  // of the keys that it sees
    return open ? open[query].end : first_position + query + 1;
  }
  int64_t last_end() const { return end(count - 1); }
};

// The oldest key that a query of the block sees.
template <class B>
int64_t oldest_key(const AttentionShape& shape, const QueryBlock<B>& block, int64_t query) {
  return oldest_seen(shape.window, block.first_position + query);
}

// The block of queries [row, row + count) and kv head g, but for its pages.
template <class B>
QueryBlock<B> block_of(const AttentionShape& shape, int64_t row, int64_t count, int64_t position,
                       int64_t g, const float* q, float* out, float* lse) {
  const int64_t heads = shape.num_heads, group = heads / shape.num_kv_heads;
  const int64_t at = row * heads + g * group, dim = shape.head_dim;
  return {
      count, group,  position, q + at * dim, out + at * dim, heads * dim, lse ? lse + at : nullptr,
      heads, nullptr};
}

// Keys [lo, hi) that a row sees.
struct SeenKeys {
  int64_t lo, hi;
};

// Calls body(page, count) for pages [begin, end), ascending: for all at once of which every slot is
// seen, and for each of the others.
template <class Body>
void over_pages(const SeenKeys& seen, int64_t begin, int64_t end, Body body) {
  const int64_t from = std::clamp(pages_of(seen.lo), begin, std::max(begin, end)),
                to = std::clamp(seen.hi / kPage, from, std::max(from, end));
  for (int64_t p = begin; p < from; ++p) body(p, 1);
  if (from < to) body(from, to - from);
  for (int64_t p = to; p < end; ++p) body(p, 1);
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
