// Attention of many queries that stand one after another on one path: a page that is read serves
// all rows of a block. Included once for each SIMD target.
#if defined(TEMPER_ATTENTION_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ATTENTION_BLOCKS_INL_H
#undef TEMPER_ATTENTION_BLOCKS_INL_H
#else
#define TEMPER_ATTENTION_BLOCKS_INL_H
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "temper/base/exact_math.h"
#include "temper/ops/native/kernels/attention/attention_queries-inl.h"
#include "temper/ops/native/kernels/attention/page_tiles-inl.h"
#include "temper/ops/native/kernels/attention/softmax-inl.h"
#include "temper/ops/native/kernels/elementary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// Rows (queries x heads) of a block, at most, and how many scores of them are kept at most, but for
// blocks of few rows.
constexpr int64_t kBlockOfRows = 48, kScoresOfBlock = int64_t{4} << 20;

// Keys that a block sees at most, of paths of this length.
inline int64_t most_seen(const AttentionShape& shape, int64_t longest, bool open) {
  return shape.window > 0 && !open ? std::min(longest, shape.window + kBlockOfRows) : longest;
}
// Rows of blocks that see so many keys.
inline int64_t rows_of_block(int64_t seen) {
  const int64_t stored = (pages_of(seen) + 1) * kPage;
  return std::clamp<int64_t>(kScoresOfBlock / stored / kTileRows * kTileRows, 2 * kTileRows,
                             kBlockOfRows);
}
// A block of so many heads at once and queries.
struct BlockSize {
  int64_t heads, queries;
};
inline BlockSize block_size(int64_t heads, int64_t seen) {
  const int64_t rows = rows_of_block(seen), splits = (heads + rows - 1) / rows,
                at_once = (heads + splits - 1) / splits;
  return {at_once, rows / at_once};
}
// Queries of one kv head that a thread takes at once: whole blocks.
inline int64_t chunk_of(const AttentionShape& shape, int64_t seen) {
  constexpr int64_t kQueries = 64;
  const int64_t of_block = block_size(shape.num_heads / shape.num_kv_heads, seen).queries;
  return std::max<int64_t>(1, kQueries / of_block) * of_block;
}

template <class B>
class RowBlock {
 public:
  // A thread's scratch.
  static int64_t scratch_floats(int64_t dim, int64_t seen) {
    const int64_t rows = rows_of_block(seen);
    return rows * (2 * padded(dim) + kPage + 16) + kTileRows * kKeys +
           (pages_of(seen) + 1) * rows * kPage;
  }
  // block: of at most rows_of_block(seen) rows.
  RowBlock(const AttentionShape& shape, const QueryBlock<B>& block, float* scratch)
      : shape_(shape),
        block_(block),
        dim_(shape.head_dim),
        width_(padded(dim_)),
        rows_(block.count * block.heads),
        tiles_((rows_ + kTileRows - 1) / kTileRows),
        tile_((rows_ + tiles_ - 1) / tiles_) {
    weights_ = scratch;
    max_ = weights_ + kTileRows * kKeys;
    sum_ = max_ + rows_ * kPage;
    values_ = sum_ + rows_ * 16;
    q_ = values_ + rows_ * width_;
    scores_ = q_ + rows_ * width_;
    for (int64_t i = 0; i < block.count; ++i) {
      const SeenKeys seen{oldest_key(shape, block, i), block.end(i)};
      std::fill_n(seen_ + i * block.heads, block.heads, seen);
      std::memcpy(q_ + i * block.heads * dim_, block.q + i * block.stride,
                  static_cast<size_t>(block.heads * dim_) * sizeof(float));
    }
    first_page_ = seen_[0].lo / kPage;
    end_page_ = pages_of(seen_[rows_ - 1].hi);
    const float scale = static_cast<float>(shape.scale);
    late_ = shape.soft_cap == 0 && scale > 0;
    factor_ = late_ ? scale : 1.0f;
  }

  void attend() {
    std::fill_n(max_, rows_ * kPage, -std::numeric_limits<float>::infinity());
    std::fill_n(sum_, rows_ * 16, 0.0f);
    std::fill_n(values_, rows_ * width_, 0.0f);
    for (int64_t p = first_page_; p < end_page_; p += kScorePages)
      add_scores(p, std::min(end_page_, p + kScorePages));
    for (int64_t row = 0; row < rows_; ++row) {
      float* lanes = max_ + row * kPage;
      lanes[0] = largest(kPage, lanes) * factor_;
    }
    for (int64_t p = first_page_; p < end_page_; p += kPages) {
      const int64_t end = std::min(end_page_, p + kPages);
      for (int64_t row = 0; row < rows_; row += tile_)
        add_values(p, end, row, std::min(rows_, row + tile_));
    }
    for (int64_t row = 0; row < rows_; ++row) write_out(row);
  }

 private:
  // At once: while their scores are in the first-level cache, or while values are added up.
  static constexpr int64_t kScorePages = 64 / kPage, kKeys = 256, kPages = kKeys / kPage;

  float* scores(int64_t page, int64_t row) const {
    return scores_ + ((page - first_page_) * rows_ + row) * kPage;
  }
  Slots slots(int64_t row, int64_t page) const {
    return {seen_[row].lo - page * kPage, seen_[row].hi - page * kPage};
  }

  // Into the second-level cache: hardware prefetchers stop at the end of a page of memory. The load
  // brings the address into the TLB (ReadAhead).
  void fetch(int64_t page, int64_t offset, int64_t count) const {
    if (page >= end_page_) return;
    const char* from = reinterpret_cast<const char*>(block_.pages[page] + offset);
    static_cast<void>(*reinterpret_cast<const volatile char*>(from));
    for (int64_t at = 0; at < count * static_cast<int64_t>(sizeof(B)); at += 64)
      __builtin_prefetch(from + at, 0, 2);
  }

  void add_scores(int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      fetch(p + 2, 0, column_values(dim_));
      for (int64_t row = 0; row < rows_; row += tile_) {
        const int64_t stop = std::min(rows_, row + tile_);
        if (seen_[row].lo >= (p + 1) * kPage || seen_[stop - 1].hi <= p * kPage) continue;
        tile_row(static_cast<int>(stop - row), kPage, dim_, q_ + row * dim_, dim_, 1,
                 block_.pages[p], 0, scores(p, row), kPage, false);
      }
    }
    for (int64_t row = 0; row < rows_; ++row) {
      float* most = max_ + row * kPage;
      const int64_t from = std::max(begin, seen_[row].lo / kPage),
                    to = std::min(end, pages_of(seen_[row].hi));
      if (!late_)
        for (int64_t p = from; p < to; ++p) finish(scores(p, row));
      over_pages(seen_[row], from, to, [&](int64_t p, int64_t count) {
        const Slots seen = slots(row, p + count - 1);
        if (seen.all())
          raise_largest(scores(p, row), rows_ * kPage, count, most);
        else
          raise_largest(scores(p, row), seen, most);
      });
    }
  }

  void finish(float* HWY_RESTRICT s) const {
    const float scale = static_cast<float>(shape_.scale), cap = static_cast<float>(shape_.soft_cap);
    if (cap > 0)
      for (int64_t i = 0; i < kPage; ++i) s[i] = cap * tanh_of(s[i] * scale / cap);
    else
      for (int64_t i = 0; i < kPage; ++i) s[i] *= scale;
  }

  // The weights of the row's scores with pages [begin, end); 0 where it sees nothing.
  void weigh(int64_t row, int64_t begin, int64_t end, float* to) {
    const Exponents by{factor_, max_[row * kPage]};
    over_pages(seen_[row], begin, end, [&](int64_t p, int64_t count) {
      weigh_pages(scores(p, row), rows_ * kPage, count, by, slots(row, p + count - 1),
                  to + (p - begin) * kPage, sum_ + row * 16);
    });
  }

  // Adds what pages [begin, end) weigh in rows [row, stop), of one tile.
  void add_values(int64_t begin, int64_t end, int64_t row, int64_t stop) {
    begin = std::max(begin, seen_[row].lo / kPage);
    end = std::min(end, pages_of(seen_[stop - 1].hi));
    if (begin >= end) return;
    for (int64_t r = row; r < stop; ++r) weigh(r, begin, end, weights_ + (r - row) * kKeys);
    const int64_t whole = std::clamp(pages_of(seen_[stop - 1].lo), begin, end),
                  whole_end = std::clamp(seen_[row].hi / kPage, whole, end);
    for (int64_t p = begin; p < whole; ++p) add_part(p, begin, row, stop);
    if (whole < whole_end)
      pages_tile_row(static_cast<int>(stop - row), width_, whole_end - whole,
                     weights_ + (whole - begin) * kPage, kKeys, block_.pages + whole,
                     column_values(dim_), kPage * kPanel, values_ + row * width_, width_);
    for (int64_t p = whole_end; p < end; ++p) add_part(p, begin, row, stop);
  }

  // The same for a page that not all rows see whole: no value beyond a row's own is touched. What
  // all see is one tile's work, the rest is added query by query.
  void add_part(int64_t page, int64_t begin, int64_t row, int64_t stop) {
    const int64_t first = page * kPage, last = first + kPage;
    const auto add = [&](int64_t r, int64_t end_row, int64_t from, int64_t to) {
      from = std::max(from, first);
      to = std::min(to, last);
      if (from >= to) return;
      tile_row(static_cast<int>(end_row - r), width_, to - from,
               weights_ + (r - row) * kKeys + from - begin * kPage, kKeys, 1,
               block_.pages[page] + column_values(dim_) + (from - first) * kPanel, kPage * kPanel,
               values_ + r * width_, width_, true);
    };
    const int64_t all_from = std::max(first, seen_[stop - 1].lo),
                  all_to = std::max(all_from, std::min(last, seen_[row].hi));
    const auto of_queries = [&](auto part) {
      for (int64_t r = row, next; r < stop; r = next) {
        next = std::min(stop, (r / block_.heads + 1) * block_.heads);
        part(r, next, seen_[r]);
      }
    };
    of_queries([&](int64_t r, int64_t next, const SeenKeys& seen) {
      add(r, next, seen.lo, std::min(all_from, seen.hi));
    });
    add(row, stop, all_from, std::min(all_to, seen_[row].hi));
    of_queries([&](int64_t r, int64_t next, const SeenKeys& seen) {
      add(r, next, std::max(seen.lo, all_to), seen.hi);
    });
  }

  void write_out(int64_t row) const {
    const int64_t query = row / block_.heads, head = row % block_.heads;
    Partials<float> partials;
    std::copy_n(sum_ + row * 16, 16, partials.sum);
    const float sum = partials.total();
    float* out = block_.out + query * block_.stride + head * dim_;
    const float* from = values_ + row * width_;
    for (int64_t d = 0; d < dim_; ++d) out[d] = from[d] / sum;
    if (block_.lse)
      block_.lse[query * block_.lse_stride + head] = max_[row * kPage] + exact::log_float(sum);
  }

  const AttentionShape& shape_;
  const QueryBlock<B>& block_;
  const int64_t dim_, width_, rows_, tiles_, tile_;
  int64_t first_page_, end_page_;
  bool late_;                    // scores are scaled as they are read for their exponentials
  float factor_;                 // times it
  SeenKeys seen_[kBlockOfRows];  // ascending
  float* weights_;               // [kTileRows][kKeys]
  float* max_;                   // [rows][kPage]: by slot, then the row's in the first
  float* sum_;                   // [rows][16]
  float* values_;                // weighed sums, [rows][width]
  float* q_;                     // [rows][dim]
  float* scores_;                // [pages][rows][kPage]
};

// All of a block, in blocks of rows.
template <class B>
void attend_all(const AttentionShape& shape, const QueryBlock<B>& block, int64_t seen,
                float* scratch) {
  const auto [heads, queries] = block_size(block.heads, seen);
  for (int64_t h = 0; h < block.heads; h += heads)
    for (int64_t i = 0; i < block.count; i += queries) {
      QueryBlock<B> part = block;
      part.heads = std::min(heads, block.heads - h);
      part.count = std::min(queries, block.count - i);
      part.first_position += i;
      part.q += i * block.stride + h * shape.head_dim;
      part.out += i * block.stride + h * shape.head_dim;
      if (block.lse) part.lse += i * block.lse_stride + h;
      if (block.open) part.open += i;
      RowBlock<B>(shape, part, scratch).attend();
    }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
