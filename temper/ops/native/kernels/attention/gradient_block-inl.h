// The gradient of a block of queries of one head, which meets blocks of pages. Included once for
// each SIMD target.
#if defined(TEMPER_GRADIENT_BLOCK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_GRADIENT_BLOCK_INL_H
#undef TEMPER_GRADIENT_BLOCK_INL_H
#else
#define TEMPER_GRADIENT_BLOCK_INL_H
#endif

#include <algorithm>
#include <cmath>

#include "temper/ops/native/kernels/attention/attention_queries-inl.h"
#include "temper/ops/native/kernels/attention/page_tiles-inl.h"
#include "temper/ops/native/kernels/attention/softmax-inl.h"
#include "temper/ops/native/kernels/elementary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// Every sum is one chain: dQ over the keys, dK and dV over the queries, ascending. What is wholly
// masked is not computed.
class GradientBlock {
 public:
  // Queries and keys of a block: whole tiles, and whole pages.
  static constexpr int64_t kQueries = 96, kKeys = 96, kPages = kKeys / kPage;

  // A page packed for the backward pass: keys and values as columns, keys as rows.
  static int64_t page_floats(int64_t dim) { return 2 * column_values(dim) + row_values(dim); }
  // A thread's scratch.
  static int64_t scratch_floats(int64_t dim) {
    return kQueries * (2 * kKeys + 5 * padded(dim) + 1);
  }
  // Queries one behind the other: rows of q, out, dout and dq are `stride` floats apart.
  struct Rows {
    int64_t count, position;  // of the first
    const float *q, *out, *dout;
    float* dq;
    int64_t stride;
    const float* lse;  // [count], `lse_stride` apart
    int64_t lse_stride;
    const OpenPositions* open;  // or null
  };

  GradientBlock(const AttentionShape& shape, float* scratch) : shape_(shape) {
    const int64_t rows = kQueries * padded(shape.head_dim);
    probability_ = scratch;
    dscore_ = probability_ + kQueries * kKeys;
    q_ = dscore_ + kQueries * kKeys;
    dout_ = q_ + rows;
    q_rows_ = dout_ + rows;
    dout_rows_ = q_rows_ + rows;
    dq_ = dout_rows_ + rows;
    delta_ = dq_ + rows;
  }

  void begin(const Rows& rows) {
    const int64_t dim = shape_.head_dim;
    rows_ = rows;
    std::fill_n(dq_, rows.count * padded(dim), 0.0f);
    for (int64_t i = 0; i < rows.count; ++i) {
      const float *q = rows.q + i * rows.stride, *dout = rows.dout + i * rows.stride,
                  *out = rows.out + i * rows.stride;
      std::copy_n(q, dim, q_ + i * dim);
      std::copy_n(dout, dim, dout_ + i * dim);
      write_row(q_rows_, rows.count, i, dim, q);
      write_row(dout_rows_, rows.count, i, dim, dout);
      delta_[i] = sum16<float>(
          0, dim, [&](int64_t d, float sum) { return std::fma(dout[d], out[d], sum); });
      const int64_t position = rows.position + i;
      seen_[i] = {oldest_seen(shape_.window, position),
                  rows.open ? rows.open[i].end : position + 1};
    }
  }
  int64_t first_page() const { return seen_[0].lo / kPage; }
  int64_t end_page() const { return pages_of(seen_[rows_.count - 1].hi); }

  // Pages [begin, end) of the path, which lie side by side from `page` on; so do the sums of dK and
  // dV of their keys, [keys, D].
  void add(int64_t begin, int64_t end, const float* page, float* dk, float* dv) {
    const int64_t dim = shape_.head_dim;
    for (int64_t p = begin; p < end; ++p) {
      const Queries of_page = seeing(p * kPage, (p + 1) * kPage);
      const float* columns = page + (p - begin) * page_floats(dim);
      for (int64_t i = of_page.begin; i < of_page.end; i += kTileRows) {
        const int rows = static_cast<int>(std::min<int64_t>(kTileRows, of_page.end - i));
        const int64_t at = i * kKeys + (p - begin) * kPage;
        tile_row(rows, kPage, dim, q_ + i * dim, dim, 1, columns, 0, probability_ + at, kKeys,
                 false);
        tile_row(rows, kPage, dim, dout_ + i * dim, dim, 1, columns + column_values(dim), 0,
                 dscore_ + at, kKeys, false);
      }
    }
    const Queries all = seeing(begin * kPage, end * kPage);
    for (int64_t i = all.begin; i < all.end; ++i) softmax_row(i, begin, end);
    add_to_keys(begin, end, all, dk, dv);
    add_to_queries(begin, end, all, page);
  }

  void write() const {
    const int64_t dim = shape_.head_dim;
    for (int64_t i = 0; i < rows_.count; ++i)
      std::copy_n(dq_ + i * padded(dim), dim, rows_.dq + i * rows_.stride);
  }

 private:
  // The queries of the block that see keys of [from, to).
  struct Queries {
    int64_t begin, end;
  };
  Queries seeing(int64_t from, int64_t to) const {
    const SeenKeys* const end = seen_ + rows_.count;
    const SeenKeys* first =
        std::partition_point(seen_, end, [&](const SeenKeys& s) { return s.hi <= from; });
    const SeenKeys* last =
        std::partition_point(first, end, [&](const SeenKeys& s) { return s.lo < to; });
    return {first - seen_, last - seen_};
  }

  // dV += Pᵀ dO, dK += dSᵀ Q, of the keys in pages [begin, end).
  void add_to_keys(int64_t begin, int64_t end, Queries all, float* dk, float* dv) {
    const int64_t dim = shape_.head_dim, first = begin * kPage,
                  keys = std::min(end * kPage, seen_[all.end - 1].hi) - first;
    for (int64_t j = 0; j < keys; j += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, keys - j);
      const Queries of_keys = seeing(first + j, first + j + rows);
      const int64_t depth = of_keys.end - of_keys.begin, at = of_keys.begin * kKeys + j;
      if (depth <= 0) continue;
      tile_row(static_cast<int>(rows), dim, depth, probability_ + at, 1, kKeys,
               dout_rows_ + of_keys.begin * kPanel, rows_.count * kPanel, dv + j * dim, dim, true);
      tile_row(static_cast<int>(rows), dim, depth, dscore_ + at, 1, kKeys,
               q_rows_ + of_keys.begin * kPanel, rows_.count * kPanel, dk + j * dim, dim, true);
    }
  }

  // dQ += dS K.
  void add_to_queries(int64_t begin, int64_t end, Queries all, const float* page) {
    const int64_t dim = shape_.head_dim, width = padded(dim);
    const float* pages[kPages];
    for (int64_t p = begin; p < end; ++p) pages[p - begin] = page + (p - begin) * page_floats(dim);
    const int64_t key_rows = 2 * column_values(dim);
    for (int64_t i = all.begin; i < all.end; i += kTileRows) {
      const int rows = static_cast<int>(std::min<int64_t>(kTileRows, all.end - i));
      const int64_t to = std::min(end * kPage, seen_[i + rows - 1].hi),
                    from = std::max(begin, seen_[i].lo / kPage), whole = std::max(from, to / kPage);
      const float* dscore = dscore_ + i * kKeys;
      float* dq = dq_ + i * width;
      if (from < whole)
        pages_tile_row(rows, width, whole - from, dscore + (from - begin) * kPage, kKeys,
                       pages + (from - begin), key_rows, kPage * kPanel, dq, width);
      if (whole * kPage < to)
        tile_row(rows, width, to - whole * kPage, dscore + (whole - begin) * kPage, kKeys, 1,
                 pages[whole - begin] + key_rows, kPage * kPanel, dq, width, true);
    }
  }

  // The row's scores with pages [begin, end) become probabilities, and dP becomes dS =
  // P (dP - Σ_d dO O) with the derivatives of soft cap and scale; where it sees nothing both
  // become 0.
  void softmax_row(int64_t i, int64_t begin, int64_t end) {
    const SeenKeys seen = seen_[i];
    const int64_t from = std::clamp(seen.lo / kPage, begin, end),
                  to = std::clamp(pages_of(seen.hi), from, end);
    float *p = probability_ + i * kKeys, *ds = dscore_ + i * kKeys;
    for (float* x : {p, ds}) {
      std::fill(x, x + (from - begin) * kPage, 0.0f);
      std::fill(x + (to - begin) * kPage, x + (end - begin) * kPage, 0.0f);
    }
    const float lse = rows_.lse[i * rows_.lse_stride];
    const auto pages = [&](int64_t page, int64_t count) {
      const int64_t at = (page - begin) * kPage, last = (page + count - 1) * kPage;
      const Slots slots{seen.lo - last, seen.hi - last};
      if (shape_.soft_cap > 0)
        for (int64_t k = 0; k < count; ++k)
          capped_page(lse, delta_[i], slots, p + at + k * kPage, ds + at + k * kPage);
      else
        differentiate_pages(count, {static_cast<float>(shape_.scale), lse}, delta_[i], slots,
                            p + at, ds + at);
    };
    over_pages(seen, from, to, pages);
  }

  // Whole pages, because loops of known length are vectors throughout.
  void capped_page(float lse, float delta, Slots slots, float* HWY_RESTRICT p,
                   float* HWY_RESTRICT ds) const {
    const float scale = static_cast<float>(shape_.scale), cap = static_cast<float>(shape_.soft_cap);
    const int32_t lo = static_cast<int32_t>(std::clamp<int64_t>(slots.lo, 0, kPage)),
                  hi = static_cast<int32_t>(std::clamp<int64_t>(slots.hi, 0, kPage));
    for (int32_t j = 0; j < kPage; ++j) {
      const float bent = tanh_of(p[j] * scale / cap), probability = exp_of(cap * bent - lse);
      const bool seen = j >= lo && j < hi;
      ds[j] = seen ? probability * (ds[j] - delta) * ((1.0f - bent * bent) * scale) : 0.0f;
      p[j] = seen ? probability : 0.0f;
    }
  }

  const AttentionShape& shape_;
  Rows rows_{};
  SeenKeys seen_[kQueries];       // ascending
  float *probability_, *dscore_;  // [kQueries][kKeys]
  float *q_, *dout_;              // [kQueries][D]
  float *q_rows_, *dout_rows_;    // panels of [count][kPanel]
  float* dq_;                     // [kQueries][padded D]
  float* delta_;                  // [kQueries]
};

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
