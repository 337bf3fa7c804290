// Attention over the sampler's pages where a head's values are its keys, which a page holds once,
// as rows. Included once for each SIMD target.
#if defined(TEMPER_ATTENTION_KEYS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ATTENTION_KEYS_INL_H
#undef TEMPER_ATTENTION_KEYS_INL_H
#else
#define TEMPER_ATTENTION_KEYS_INL_H
#endif

#include <omp.h>

#include <algorithm>
#include <span>
#include <vector>

#include "temper/ops/native/kernels/attention/attention_forward-inl.h"
#include "temper/ops/native/kernels/attention/attention_runs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

template <class B>
void write_key_pages(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                     const float* k) {
  const int64_t kv_heads = shape.num_kv_heads, dim = shape.head_dim;
#pragma omp parallel for collapse(2) schedule(static) if (num_tokens * kv_heads * dim > 8192)
  for (int64_t i = 0; i < num_tokens; ++i)
    for (int64_t g = 0; g < kv_heads; ++g) {
      B* page = static_cast<B*>(rows[i].pages[rows[i].position / kPage]) + g * row_values(dim);
      write_row(page, kPage, rows[i].position % kPage, dim, k + (i * kv_heads + g) * dim);
    }
}

// Products of all slots of a page, over `depth` features, with the first half of a panel of
// queries: as tile(), whose vectors would be half empty.
constexpr int64_t kHalfPanel = kPanel / 2;
inline void half_panel_tile(int64_t depth, const float* keys, const float* queries, float* to,
                            int64_t to_row, bool from_to) {
#if TEMPER_HAS_FMA
  const D d;
  constexpr int64_t kVectors = kHalfPanel / HWY_MIN(kLanes, kHalfPanel), kRows = 8;
  for (int64_t slot = 0; slot < kPage; slot += kRows) {
    hn::Vec<D> sum[kRows][kVectors];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRows; ++i)
#pragma GCC unroll 16
      for (int64_t v = 0; v < kVectors; ++v)
        sum[i][v] = from_to ? hn::LoadU(d, to + (slot + i) * to_row + v * kLanes) : hn::Zero(d);
    for (int64_t k = 0; k < depth; ++k)
#pragma GCC unroll 16
      for (int64_t i = 0; i < kRows; ++i) {
        const hn::Vec<D> left = hn::Set(d, keys[(slot + i) * kPanel + k]);
#pragma GCC unroll 16
        for (int64_t v = 0; v < kVectors; ++v)
          sum[i][v] = hn::MulAdd(left, hn::LoadU(d, queries + k * kPanel + v * kLanes), sum[i][v]);
      }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRows; ++i)
#pragma GCC unroll 16
      for (int64_t v = 0; v < kVectors; ++v)
        hn::StoreU(sum[i][v], d, to + (slot + i) * to_row + v * kLanes);
  }
#else
  for (int64_t slot = 0; slot < kPage; slot += kTileRows)
    tile_row(static_cast<int>(std::min<int64_t>(kTileRows, kPage - slot)), kHalfPanel, depth,
             keys + slot * kPanel, kPanel, 1, queries, 0, to + slot * to_row, to_row, from_to);
#endif
}

// The queries of a few tokens, and of some heads that share a kv head, over pages of one layer: a
// row is a token's query of one head. Scores are computed key by key, so that rows stand side by
// side in the vectors and keys need not be turned into columns; each score is the same chain.
template <class B>
class KeyPagesTile {
 public:
  struct Arrays {
    const CachedQuery* rows;
    const float* q;
    float *out, *lse;
  };
  // A thread's scratch for tiles of so many rows.
  static int64_t scratch_floats(int64_t dim, int64_t most_rows, int64_t longest) {
    const int64_t width = padded(most_rows);
    return width * (dim + kPage + 1 + pages_of(longest) * kPage + padded(dim)) + row_values(dim);
  }
  KeyPagesTile(const AttentionShape& shape, const Arrays& arrays, int64_t most_rows,
               int64_t longest, float* scratch)
      : shape_(shape), a_(arrays), dim_(shape.head_dim), width_(padded(most_rows)) {
    stride_ = pages_of(longest) * kPage;
    queries_ = scratch;
    by_key_ = queries_ + width_ * dim_;
    sums_ = by_key_ + width_ * kPage;
    scores_ = sums_ + width_;
    values_ = scores_ + width_ * stride_;
    floats_ = values_ + width_ * padded(dim_);
  }

  // Runs whose sequences begin with the same `shared` pages, and heads [head, head + heads).
  void attend(std::span<const CachedRun> runs, int64_t shared, int64_t head, int64_t heads) {
    head_ = head;
    heads_ = heads;
    const int64_t group = shape_.num_heads / shape_.num_kv_heads;
    page_offset_ = head / group * row_values(dim_);
    int64_t count = 0;
    for (const CachedRun& run : runs) count += run.end - run.begin;
    const int64_t all = count * heads;
    read_queries(runs, all);
    const CachedQuery& first = a_.rows[runs[0].begin];
    for (int64_t p = 0; p < shared; ++p)
      add_scores(first, p, 0, all, page_before(first, p + 1, shared));
    int64_t row = 0;
    for (const CachedRun& run : runs) {
      const int64_t end = row + (run.end - run.begin) * heads;
      for (int64_t p = std::max(shared, oldest(run.begin) / kPage); p < pages_to(run); ++p)
        add_scores(a_.rows[run.begin], p, row, end,
                   page_before(a_.rows[run.begin], p + 1, pages_to(run)));
      for (int64_t token = run.begin; token < run.end; ++token)
        for (int64_t h = head; h < head + heads; ++h, ++row) finish_scores(token, h, row);
    }
    std::fill(values_, values_ + all * padded(dim_), 0.0f);
    for (int64_t p = 0; p < shared; ++p)
      add_values(first, p, 0, kPage, 0, all, page_before(first, p + 1, shared));
    row = 0;
    for (const CachedRun& run : runs) {
      for (int64_t p = std::max(shared, oldest(run.begin) / kPage); p < pages_to(run); ++p)
        add_page(run, p, row);
      for (int64_t token = run.begin; token < run.end; ++token)
        for (int64_t h = head; h < head + heads; ++h, ++row) write_out(token, h, row);
    }
  }

 private:
  int64_t position(int64_t token) const { return a_.rows[token].position; }
  int64_t oldest(int64_t token) const {
    return shape_.window > 0 ? std::max<int64_t>(0, position(token) - shape_.window + 1) : 0;
  }
  int64_t pages_to(const CachedRun& run) const { return pages_of(position(run.end - 1) + 1); }
  const B* page_of(const CachedQuery& query, int64_t page) const {
    return static_cast<const B*>(query.pages[page]) + page_offset_;
  }

  // As columns of panels; those that no row has are 0.
  void read_queries(std::span<const CachedRun> runs, int64_t all) {
    int64_t row = 0;
    for (const CachedRun& run : runs)
      for (int64_t token = run.begin; token < run.end; ++token)
        for (int64_t h = head_; h < head_ + heads_; ++h, ++row)
          write_column(queries_ + row / kPanel * dim_ * kPanel, row % kPanel, dim_,
                       a_.q + (token * shape_.num_heads + h) * dim_);
    for (; row < padded(all); ++row)
      for (int64_t d = 0; d < dim_; ++d)
        queries_[(row / kPanel * dim_ + d) * kPanel + row % kPanel] = 0;
  }

  // Values [begin, end) of a page that is read next, or of none, into the second-level cache. The
  // load brings the address into the TLB (ReadAhead).
  static void fetch(const B* page, int64_t begin, int64_t end) {
    if (!page) return;
    const char* const from = reinterpret_cast<const char*>(page);
    if (begin == 0) static_cast<void>(*static_cast<const volatile char*>(from));
    constexpr int64_t kLine = 64, kSize = static_cast<int64_t>(sizeof(B));
    for (int64_t at = begin * kSize; at < end * kSize; at += kLine)
      __builtin_prefetch(from + at, 0, 2);
  }
  const B* page_before(const CachedQuery& query, int64_t page, int64_t end) const {
    return page < end ? page_of(query, page) : nullptr;
  }

  // The page's keys, as float32, in panels.
  const float* keys_of(const float* page) { return page; }
  template <class Stored>
  const float* keys_of(const Stored* page) {
    for (int64_t i = 0; i < row_values(dim_); ++i) floats_[i] = to_float(page[i]);
    return floats_;
  }

  // Scores of rows [begin, end) with all slots of a page.
  void add_scores(const CachedQuery& query, int64_t page, int64_t begin, int64_t end,
                  const B* next) {
    const float* keys = keys_of(page_of(query, page));
    const int64_t first = begin / kPanel * kPanel, rest = (end - first) % kPanel;
    const bool half = rest > 0 && rest <= kHalfPanel;
    const int64_t columns = half ? end - first - rest : padded(end) - first;
    const float* queries = queries_ + first * dim_;
    for (int64_t d = 0; d < dim_; d += kPanel) {
      const int64_t depth = std::min<int64_t>(kPanel, dim_ - d);
      fetch(next, d * kPage, std::min(dim_, d + kPanel) * kPage);
      for (int64_t slot = 0; slot < kPage && columns > 0; slot += kTileRows)
        tile_row(static_cast<int>(std::min<int64_t>(kTileRows, kPage - slot)), columns, depth,
                 keys + d * kPage + slot * kPanel, kPanel, 1, queries + d * kPanel, dim_ * kPanel,
                 by_key_ + slot * width_ + first, width_, d > 0);
      if (half)
        half_panel_tile(depth, keys + d * kPage, queries + columns * dim_ + d * kPanel,
                        by_key_ + first + columns, width_, d > 0);
    }
    for (int64_t row = begin; row < end; ++row) {
      float* to = scores_ + row * stride_ + page * kPage;
      for (int64_t slot = 0; slot < kPage; ++slot) to[slot] = by_key_[slot * width_ + row];
    }
  }

  void finish_scores(int64_t token, int64_t head, int64_t row) {
    const RowSum of_row =
        exponentials(shape_, scores_ + row * stride_, oldest(token), position(token) + 1);
    sums_[row] = of_row.sum;
    if (a_.lse) a_.lse[token * shape_.num_heads + head] = of_row.max + exact::log_float(of_row.sum);
  }

  // Adds what slots [from, to) of a page weigh in rows [begin, end).
  void add_values(const CachedQuery& query, int64_t page, int64_t from, int64_t to, int64_t begin,
                  int64_t end, const B* next) {
    const B* keys = page_of(query, page) + from * kPanel;
    const int64_t width = padded(dim_);
    const int64_t tiles = (end - begin + kTileRows - 1) / kTileRows;
    for (int64_t row = begin, i = 0; row < end; row += kTileRows, ++i) {
      fetch(next, row_values(dim_) * i / tiles, row_values(dim_) * (i + 1) / tiles);
      tile_row(static_cast<int>(std::min<int64_t>(kTileRows, end - row)), width, to - from,
               scores_ + row * stride_ + page * kPage + from, stride_, 1, keys, kPage * kPanel,
               values_ + row * width, width, true);
    }
  }

  // A page of a run, whose tokens may each see another part of it.
  void add_page(const CachedRun& run, int64_t page, int64_t row) {
    const int64_t begin = page * kPage, end = begin + kPage;
    const bool whole = position(run.begin) + 1 >= end && oldest(run.end - 1) <= begin;
    if (whole)
      return add_values(a_.rows[run.begin], page, 0, kPage, row,
                        row + (run.end - run.begin) * heads_,
                        page_before(a_.rows[run.begin], page + 1, pages_to(run)));
    for (int64_t token = run.begin; token < run.end; ++token, row += heads_) {
      const int64_t from = std::max(oldest(token), begin), to = std::min(position(token) + 1, end);
      if (from < to)
        add_values(a_.rows[token], page, from - begin, to - begin, row, row + heads_, nullptr);
    }
  }

  void write_out(int64_t token, int64_t head, int64_t row) {
    float* out = a_.out + (token * shape_.num_heads + head) * dim_;
    const float* from = values_ + row * padded(dim_);
    for (int64_t d = 0; d < dim_; ++d) out[d] = from[d] / sums_[row];
  }

  const AttentionShape& shape_;
  const Arrays a_;
  const int64_t dim_, width_;  // columns: the rows, up to whole panels
  int64_t stride_, head_ = 0, heads_ = 0, page_offset_ = 0;
  float* queries_;  // panels of [dim][kPanel]
  float* by_key_;   // scores of a page, [kPage][width]
  float* sums_;     // [width]
  float* scores_;   // [width][stride]
  float* values_;   // weighed sums, [width][padded dim]
  float* floats_;   // a page as float32
};

// Rows of a tile: what one reading of a page serves.
constexpr int64_t kKeyPagesRows = 128;

template <class B>
void attention_over_key_pages(const AttentionShape& shape, int64_t num_tokens,
                              const CachedQuery* rows, const float* q, float* out, float* lse) {
  const int64_t kv_heads = shape.num_kv_heads, group = shape.num_heads / kv_heads,
                threads = omp_get_max_threads();
  // Few tokens leave their heads to several threads, many a few tokens to each.
  const int64_t pieces = std::clamp<int64_t>(threads / std::max<int64_t>(num_tokens * kv_heads, 1),
                                             1, (group + kTileRows - 1) / kTileRows),
                heads = (group + pieces - 1) / pieces, of_group = (group + heads - 1) / heads;
  const int64_t fair = (num_tokens * kv_heads * of_group + threads - 1) / threads,
                tokens = std::max<int64_t>(1, std::min(kKeyPagesRows / heads, fair));
  const std::vector<CachedRun> runs = runs_of(num_tokens, rows, tokens);
  const std::vector<RunFamily> families = families_of(shape, runs, rows, tokens);
  int64_t longest = 0;
  for (int64_t i = 0; i < num_tokens; ++i) longest = std::max(longest, rows[i].position + 1);
  const int64_t most_rows = tokens * heads,
                per_thread = KeyPagesTile<B>::scratch_floats(shape.head_dim, most_rows, longest);
  const Floats scratch = allocate(threads * per_thread);
  const int64_t of_family = kv_heads * of_group,
                items = static_cast<int64_t>(families.size()) * of_family;
#pragma omp parallel
  {
    KeyPagesTile<B> tile(shape, {rows, q, out, lse}, most_rows, longest,
                         scratch.get() + omp_get_thread_num() * per_thread);
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < items; ++item) {
      const RunFamily& family = families[static_cast<size_t>(item / of_family)];
      const int64_t g = item % of_family / of_group, first = item % of_group * heads;
      tile.attend(std::span(runs).subspan(family.begin, family.end - family.begin), family.shared,
                  g * group + first, std::min(heads, group - first));
    }
  }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
