// Attention's forward pass over pages. Included once for each SIMD target.
#if defined(TEMPER_ATTENTION_FORWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ATTENTION_FORWARD_INL_H
#undef TEMPER_ATTENTION_FORWARD_INL_H
#else
#define TEMPER_ATTENTION_FORWARD_INL_H
#endif

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "temper/ops/cpu/attention_pages-inl.h"
#include "temper/ops/cpu/elementary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// Queries that stand one after another on one path, and the heads that share a kv head. B: what
// the pages hold.
template <class B>
struct QueryBlock {
  int64_t count, heads;
  int64_t first_position;  // of the first query
  const float* q;          // [count, heads, head_dim], `stride` floats between queries
  float* out;              // as q
  int64_t stride;
  float* lse;  // [count, heads], `lse_stride` between queries; or null
  int64_t lse_stride;
  const B* const* pages;  // of the path, from position 0
};

// Queries are shared out among threads in chunks of this many.
constexpr int64_t kChunk = 64;

// A thread's scratch: for a tile's rows their scores, queries and weighted sums of values.
inline int64_t scratch_floats(int64_t head_dim, int64_t longest) {
  return kTileRows * (pages_of(longest) * kPage + 2 * padded(head_dim));
}

struct RowSum {
  float max, sum;
};

// Turns scores[lo, hi) into exponentials.
inline RowSum exponentials(const AttentionShape& shape, float* scores, int64_t lo, int64_t hi) {
  const float scale = static_cast<float>(shape.scale), cap = static_cast<float>(shape.soft_cap);
  if (cap > 0)
    for (int64_t j = lo; j < hi; ++j) scores[j] = cap * tanh_of(scores[j] * scale / cap);
  else
    for (int64_t j = lo; j < hi; ++j) scores[j] *= scale;
  float lanes[16];
  for (float& lane : lanes) lane = scores[lo];
  int64_t j = lo;
  for (; j + 16 <= hi; j += 16) {
#pragma GCC unroll 16
    for (int64_t l = 0; l < 16; ++l) lanes[l] = scores[j + l] > lanes[l] ? scores[j + l] : lanes[l];
  }
  for (; j < hi; ++j) lanes[0] = scores[j] > lanes[0] ? scores[j] : lanes[0];
  float max = lanes[0];
  for (float lane : lanes) max = lane > max ? lane : max;
  for (j = lo; j < hi; ++j) scores[j] = exp_of(scores[j] - max);
  return {max,
          sum16<float>(lo, hi - lo, [scores](int64_t i, float sum) { return sum + scores[i]; })};
}

inline float log_of(float x) { return static_cast<float>(std::log(static_cast<double>(x))); }

// A block of at most kTileRows rows (queries x heads).
template <class B>
void attend(const AttentionShape& shape, const QueryBlock<B>& block, float* scratch) {
  const int64_t dim = shape.head_dim, heads = block.heads, rows = block.count * heads;
  const int64_t begin = block.first_position, end = begin + block.count;
  const int64_t stride = pages_of(end) * kPage, width = padded(dim);
  float* sums_of_values = scratch;
  float* queries = sums_of_values + kTileRows * width;
  float* scores = queries + kTileRows * width;
  const auto oldest = [&](int64_t query) {
    return shape.window > 0 ? std::max<int64_t>(0, begin + query - shape.window + 1) : 0;
  };

  // The rows of one tile are evenly spaced; queries are not where other heads lie between them.
  const float* q = block.q;
  if (block.count > 1 && block.stride != heads * dim) {
    for (int64_t i = 0; i < block.count; ++i)
      std::memcpy(queries + i * heads * dim, block.q + i * block.stride,
                  static_cast<size_t>(heads * dim) * sizeof(float));
    q = queries;
  }
  for (int64_t page = oldest(0) / kPage; page < pages_of(end); ++page)
    tile_row(static_cast<int>(rows), kPage, dim, q, dim, 1, block.pages[page], 0,
             scores + page * kPage, stride, false);

  float sums[kTileRows];
  for (int64_t i = 0; i < block.count; ++i)
    for (int64_t h = 0; h < heads; ++h) {
      const RowSum row =
          exponentials(shape, scores + (i * heads + h) * stride, oldest(i), begin + i + 1);
      sums[i * heads + h] = row.sum;
      if (block.lse) block.lse[i * block.lse_stride + h] = row.max + log_of(row.sum);
    }

  // Keys that every row sees are one tile's work; the others are added query by query, so that no
  // key beyond a query's own is touched.
  std::fill(sums_of_values, sums_of_values + rows * width, 0.0f);
  const auto add_values = [&](int64_t query, int64_t count, int64_t from, int64_t to) {
    const int64_t row = query * heads;
    while (from < to) {
      const int64_t page = from / kPage, slot = from % kPage,
                    stop = std::min(to, (page + 1) * kPage);
      tile_row(static_cast<int>(count * heads), width, stop - from, scores + row * stride + from,
               stride, 1, block.pages[page] + column_values(dim) + slot * kPanel, kPage * kPanel,
               sums_of_values + row * width, width, true);
      from = stop;
    }
  };
  const int64_t shared_from = oldest(block.count - 1), shared_to = std::max(shared_from, begin + 1);
  for (int64_t i = 0; i < block.count; ++i)
    add_values(i, 1, oldest(i), std::min(shared_from, begin + i + 1));
  add_values(0, block.count, shared_from, std::min(shared_to, begin + 1));
  for (int64_t i = 0; i < block.count; ++i)
    add_values(i, 1, std::max(oldest(i), shared_to), begin + i + 1);

  for (int64_t i = 0; i < block.count; ++i)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t row = i * heads + h;
      float* out = block.out + i * block.stride + h * dim;
      for (int64_t d = 0; d < dim; ++d) out[d] = sums_of_values[row * width + d] / sums[row];
    }
}

// All of a block, in tiles.
template <class B>
void attend_all(const AttentionShape& shape, const QueryBlock<B>& block, float* scratch) {
  const int64_t splits = (block.heads + kTileRows - 1) / kTileRows,
                heads = (block.heads + splits - 1) / splits, queries = kTileRows / heads;
  for (int64_t h = 0; h < block.heads; h += heads)
    for (int64_t i = 0; i < block.count; i += queries) {
      QueryBlock<B> part = block;
      part.heads = std::min(heads, block.heads - h);
      part.count = std::min(queries, block.count - i);
      part.first_position += i;
      part.q += i * block.stride + h * shape.head_dim;
      part.out += i * block.stride + h * shape.head_dim;
      if (block.lse) part.lse += i * block.lse_stride + h;
      attend(shape, part, scratch);
    }
}

// The block of tokens [token, token + count) and kv head g, but for its pages.
template <class B>
QueryBlock<B> block_of(const AttentionShape& shape, int64_t token, int64_t count, int64_t position,
                       int64_t g, const float* q, float* out, float* lse) {
  const int64_t heads = shape.num_heads, group = heads / shape.num_kv_heads;
  const int64_t at = token * heads + g * group, dim = shape.head_dim;
  return {
      count, group,  position, q + at * dim, out + at * dim, heads * dim, lse ? lse + at : nullptr,
      heads, nullptr};
}

struct QueryChunk {
  int64_t segment, first, count;  // first: within the segment
};
inline std::vector<QueryChunk> chunks_of(const ForestView& forest) {
  std::vector<QueryChunk> chunks;
  for (int64_t s = 0; s < forest.num_segments; ++s) {
    const int64_t length = forest.segment_start[s + 1] - forest.segment_start[s];
    for (int64_t i = 0; i < length; i += kChunk)
      chunks.push_back({s, i, std::min(kChunk, length - i)});
  }
  return chunks;
}

// How many kv heads are packed at once, `floats` each: a bounded amount of scratch.
inline int64_t heads_at_once(const AttentionShape& shape, int64_t floats) {
  constexpr int64_t kBudget = int64_t{16} << 20;  // floats
  return std::clamp<int64_t>(kBudget / std::max<int64_t>(floats, 1), 1, shape.num_kv_heads);
}

void Attention(const AttentionShape& shape, const ForestView& forest, const float* q,
               const float* k, const float* v, float* out, float* lse) {
  const int64_t kv_heads = shape.num_kv_heads, dim = shape.head_dim;
  const ForestPages pages(forest);
  const std::vector<QueryChunk> chunks = chunks_of(forest);
  int64_t longest = 0;
  for (int64_t s = 0; s < forest.num_segments; ++s)
    longest = std::max(longest, pages.end_position(s));
  const int64_t page_size = head_values(dim), head_size = pages.count() * page_size,
                per_thread = scratch_floats(dim, longest);
  const int64_t at_once = heads_at_once(shape, head_size);
  const Floats storage = allocate(at_once * head_size),
               scratch = allocate(omp_get_max_threads() * per_thread);
#pragma omp parallel
  {
    std::vector<int64_t> path;
    std::vector<const float*> table;
    for (int64_t first = 0; first < kv_heads; first += at_once) {
      const int64_t heads = std::min(at_once, kv_heads - first);
#pragma omp for collapse(2) schedule(static)
      for (int64_t g = 0; g < heads; ++g)
        for (int64_t p = 0; p < pages.count(); ++p) {
          float* page = storage.get() + g * head_size + p * page_size;
          int64_t token[kPage];
          const int64_t count = pages.tokens(p, token);
          for (int64_t i = 0; i < count; ++i) {
            const int64_t at = (token[i] * kv_heads + first + g) * dim;
            write_column(page, i, dim, k + at);
            write_row(page + column_values(dim), kPage, i, dim, v + at);
          }
        }
#pragma omp for collapse(2) schedule(dynamic)
      for (size_t c = 0; c < chunks.size(); ++c)
        for (int64_t g = 0; g < heads; ++g) {
          const QueryChunk& chunk = chunks[c];
          pages.path(chunk.segment, path);
          table.resize(path.size());
          for (size_t p = 0; p < path.size(); ++p)
            table[p] = storage.get() + g * head_size + path[p] * page_size;
          QueryBlock<float> block = block_of<float>(
              shape, forest.segment_start[chunk.segment] + chunk.first, chunk.count,
              pages.first_position(chunk.segment) + chunk.first, first + g, q, out, lse);
          block.pages = table.data();
          attend_all(shape, block, scratch.get() + omp_get_thread_num() * per_thread);
        }
    }
  }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
