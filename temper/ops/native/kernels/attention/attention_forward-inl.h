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
#include <span>
#include <vector>

#include "temper/base/exact_math.h"
#include "temper/ops/native/kernels/attention/attention_blocks-inl.h"
#include "temper/ops/native/kernels/attention/attention_queries-inl.h"
#include "temper/ops/native/kernels/elementary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// The keys or values of pages of the cache, in the order in which a thread reads them, prefetched
// into the second-level cache. Hardware prefetchers stop at the end of a page of memory, and pages
// of the cache lie apart. Where no TLB holds an address, a Zen 4 drops its prefetch (measured:
// without the load that comes first, prefetching saves nothing; with it, cached attention takes 0.6
// to 0.8 of the time).
template <class B>
class ReadAhead {
 public:
  void start(int64_t head_dim) {
    reads_.clear();
    bytes_ = column_values(head_dim) * static_cast<int64_t>(sizeof(B));
  }
  void add(const B* keys_or_values) { reads_.push_back(keys_or_values); }
  // Before the i-th is read.
  void reading(int64_t i) const {
    const size_t load = static_cast<size_t>(i) + kLoad, prefetch = load - kLoad + kPrefetch;
    if (load < reads_.size())  // one: the memory is asked for in huge pages
      static_cast<void>(*reinterpret_cast<const volatile char*>(reads_[load]));
    if (prefetch >= reads_.size()) return;
    const char* from = reinterpret_cast<const char*>(reads_[prefetch]);
    for (int64_t at = 0; at < bytes_; at += kLine) __builtin_prefetch(from + at, 0, 2);
  }

 private:
  static constexpr size_t kPrefetch = 4, kLoad = 6;  // reads ahead
  static constexpr int64_t kLine = 64;
  std::vector<const B*> reads_;
  int64_t bytes_ = 0;
};

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

struct PageRange {
  int64_t begin, end;
};
// The pages of a block that hold keys which it sees, but for the first `shared` ones.
template <class B>
PageRange own_pages(const AttentionShape& shape, const QueryBlock<B>& block, int64_t shared) {
  return {std::max(shared, oldest_key(shape, block, 0) / kPage), pages_of(block.last_end())};
}

// One tile's scores, and the sums of values that they weigh, row by row.
struct TileRows {
  float *scores, *sums_of_values;
  int64_t stride, width;  // floats between rows of each
};

// Adds the values of keys that only some queries see. The keys before `from` have been added.
// reading(page) is called before a page is read.
template <class B, class Reading>
void add_own_values(const AttentionShape& shape, const QueryBlock<B>& block, int64_t from,
                    const TileRows& rows, const Reading& reading) {
  const int64_t dim = shape.head_dim;
  const auto add = [&](int64_t query, int64_t count, int64_t first, int64_t end) {
    const int64_t row = query * block.heads;
    while (first < end) {
      const int64_t page = first / kPage, slot = first % kPage,
                    stop = std::min(end, (page + 1) * kPage);
      reading(page);
      tile_row(static_cast<int>(count * block.heads), rows.width, stop - first,
               rows.scores + row * rows.stride + first, rows.stride, 1,
               block.pages[page] + column_values(dim) + slot * kPanel, kPage * kPanel,
               rows.sums_of_values + row * rows.width, rows.width, true);
      first = stop;
    }
  };
  // Keys that every query of the block sees are one tile's work; the others are added query by
  // query, so that no key beyond a query's own is touched.
  const auto oldest = [&](int64_t query) {
    return std::max(from, oldest_key(shape, block, query));
  };
  const int64_t all_from = oldest(block.count - 1), first_end = block.end(0),
                all_to = std::max(all_from, first_end);
  for (int64_t i = 0; i < block.count; ++i) add(i, 1, oldest(i), std::min(all_from, block.end(i)));
  add(0, block.count, all_from, std::min(all_to, first_end));
  for (int64_t i = 0; i < block.count; ++i) add(i, 1, std::max(oldest(i), all_to), block.end(i));
}

// Adds the columns that attend reads, in its order.
template <class B>
void add_reads(const AttentionShape& shape, std::span<const QueryBlock<B>> blocks, int64_t shared,
               ReadAhead<B>& ahead) {
  for (const int64_t offset : {int64_t{0}, column_values(shape.head_dim)}) {
    for (int64_t page = 0; page < shared; ++page) ahead.add(blocks[0].pages[page] + offset);
    for (const QueryBlock<B>& block : blocks) {
      const PageRange own = own_pages(shape, block, shared);
      for (int64_t page = own.begin; page < own.end; ++page) ahead.add(block.pages[page] + offset);
    }
  }
}

// Blocks of one kv head, of at most kTileRows rows (queries x heads) in all, whose paths begin with
// the same `shared` pages, which every query sees whole: those are read once for all of them
// (Hydragen, Juravsky et al., arXiv 2402.05099). Each row's sums keep their order.
// ahead: add_reads' of these blocks, or null.
template <class B>
void attend(const AttentionShape& shape, std::span<const QueryBlock<B>> blocks, int64_t shared,
            float* scratch, const ReadAhead<B>* ahead = nullptr) {
  const int64_t dim = shape.head_dim, heads = blocks[0].heads;
  int64_t queries = 0, end = 0;
  for (const QueryBlock<B>& block : blocks) {
    queries += block.count;
    end = std::max(end, block.last_end());
  }
  const int all_rows = static_cast<int>(queries * heads);
  TileRows rows{nullptr, scratch, pages_of(end) * kPage, padded(dim)};
  float* gathered = rows.sums_of_values + kTileRows * rows.width;
  rows.scores = gathered + kTileRows * rows.width;
  const auto rows_from = [&](int64_t row) {
    TileRows part = rows;
    part.scores += row * rows.stride;
    part.sums_of_values += row * rows.width;
    return part;
  };

  // The rows of one tile are evenly spaced; queries are not where other heads lie between them.
  const float* q = blocks[0].q;
  if (queries > 1 && blocks[0].stride != heads * dim) {
    float* to = gathered;
    for (const QueryBlock<B>& block : blocks)
      for (int64_t i = 0; i < block.count; ++i, to += heads * dim)
        std::memcpy(to, block.q + i * block.stride,
                    static_cast<size_t>(heads * dim) * sizeof(float));
    q = gathered;
  }
  int64_t reads = 0;
  const auto reading = [ahead](int64_t read) {
    if (ahead) ahead->reading(read);
  };
  for (int64_t page = 0; page < shared; ++page) {
    reading(reads++);
    tile_row(all_rows, kPage, dim, q, dim, 1, blocks[0].pages[page], 0, rows.scores + page * kPage,
             rows.stride, false);
  }
  std::fill(rows.sums_of_values, rows.sums_of_values + all_rows * rows.width, 0.0f);

  float sums[kTileRows];
  int64_t row = 0;
  for (const QueryBlock<B>& block : blocks) {
    const PageRange own = own_pages(shape, block, shared);
    for (int64_t page = own.begin; page < own.end; ++page) {
      reading(reads++);
      tile_row(static_cast<int>(block.count * heads), kPage, dim, q + row * dim, dim, 1,
               block.pages[page], 0, rows.scores + row * rows.stride + page * kPage, rows.stride,
               false);
    }
    for (int64_t i = 0; i < block.count; ++i)
      for (int64_t h = 0; h < heads; ++h, ++row) {
        const RowSum of_row = exponentials(shape, rows.scores + row * rows.stride,
                                           oldest_key(shape, block, i), block.end(i));
        sums[row] = of_row.sum;
        if (block.lse)
          block.lse[i * block.lse_stride + h] = of_row.max + exact::log_float(of_row.sum);
      }
  }

  for (int64_t page = 0; page < shared; ++page) {
    reading(reads++);
    tile_row(all_rows, rows.width, kPage, rows.scores + page * kPage, rows.stride, 1,
             blocks[0].pages[page] + column_values(dim), kPage * kPanel, rows.sums_of_values,
             rows.width, true);
  }
  row = 0;
  for (const QueryBlock<B>& block : blocks) {
    const PageRange own = own_pages(shape, block, shared);
    add_own_values(shape, block, shared * kPage, rows_from(row),
                   [&](int64_t page) { reading(reads + page - own.begin); });
    reads += own.end - own.begin;
    for (int64_t i = 0; i < block.count; ++i)
      for (int64_t h = 0; h < heads; ++h, ++row) {
        float* out = block.out + i * block.stride + h * dim;
        for (int64_t d = 0; d < dim; ++d)
          out[d] = rows.sums_of_values[row * rows.width + d] / sums[row];
      }
  }
}

struct QueryChunk {
  int64_t segment, first, count;  // first: within the segment
};
inline std::vector<QueryChunk> chunks_of(const ForestView& forest, QueryRange queries,
                                         int64_t size) {
  std::vector<QueryChunk> chunks;
  for (int64_t s = 0; s < forest.num_segments; ++s) {
    const int64_t start = forest.segment_start[s],
                  end = std::min(forest.segment_start[s + 1], queries.end) - start;
    for (int64_t i = std::max<int64_t>(0, queries.first - start); i < end; i += size)
      chunks.push_back({s, i, std::min(size, end - i)});
  }
  return chunks;
}

// How many kv heads are packed at once, `floats` each: a bounded amount of scratch.
inline int64_t heads_at_once(const AttentionShape& shape, int64_t floats) {
  constexpr int64_t kBudget = int64_t{16} << 20;  // floats
  return std::clamp<int64_t>(kBudget / std::max<int64_t>(floats, 1), 1, shape.num_kv_heads);
}

// Floats that a pass holds: the pages of some kv heads at a time, and each thread's scratch.
struct PassFloats {
  int64_t at_once, head_size, per_thread;
  int64_t bytes() const {
    const int64_t floats = at_once * head_size + omp_get_max_threads() * per_thread;
    return floats * static_cast<int64_t>(sizeof(float));
  }
};

inline PassFloats forward_floats(const AttentionShape& shape, const ForestPages& pages,
                                 int64_t seen) {
  const int64_t head_size = pages.count() * head_values(shape.head_dim);
  return {heads_at_once(shape, head_size), head_size,
          RowBlock<float>::scratch_floats(shape.head_dim, seen)};
}

// Keys that a block sees at most.
inline int64_t most_seen(const AttentionShape& shape, const ForestView& forest,
                         const ForestPages& pages) {
  int64_t longest = 0;
  for (int64_t s = 0; s < forest.num_segments; ++s)
    longest = std::max(longest, pages.end_position(s));
  return most_seen(shape, longest, forest.open != nullptr);
}

void Attention(const AttentionShape& shape, const ForestView& forest, QueryRange queries,
               const float* q, const float* k, const float* v, float* out, float* lse) {
  const int64_t kv_heads = shape.num_kv_heads, dim = shape.head_dim, page_size = head_values(dim);
  const ForestPages pages(forest);
  const int64_t seen = most_seen(shape, forest, pages);
  const PassFloats floats = forward_floats(shape, pages, seen);
  const int64_t at_once = floats.at_once, head_size = floats.head_size,
                per_thread = floats.per_thread;
  const std::vector<QueryChunk> chunks = chunks_of(forest, queries, chunk_of(shape, seen));
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
      for (int64_t g = 0; g < heads; ++g)  // the last, which see most, first
        for (size_t c = 0; c < chunks.size(); ++c) {
          const QueryChunk& chunk = chunks[chunks.size() - 1 - c];
          pages.path(chunk.segment, path);
          table.resize(path.size());
          for (size_t p = 0; p < path.size(); ++p)
            table[p] = storage.get() + g * head_size + path[p] * page_size;
          QueryBlock<float> block = block_of<float>(
              shape, forest.segment_start[chunk.segment] + chunk.first - queries.first, chunk.count,
              pages.first_position(chunk.segment) + chunk.first, first + g, q, out, lse);
          block.pages = table.data();
          if (forest.open)
            block.open = forest.open + forest.segment_start[chunk.segment] + chunk.first;
          attend_all(shape, block, seen, scratch.get() + omp_get_thread_num() * per_thread);
        }
    }
  }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
