#include "temper/ops/cpu/forest_attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "temper/ops/cpu/reference_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/cpu/forest_attention.cpp"
#include "temper/ops/cpu/targets.h"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "temper/ops/cpu/elementary-inl.h"
#include "temper/ops/cpu/tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// A page holds kPanel positions, so that its keys are a panel of the register tile: K as
// [D][kPanel], V as [D / kPanel] panels of [kPanel][kPanel].
constexpr int64_t kPage = kPanel;

inline int64_t value_panels(int64_t head_dim) { return (head_dim + kPanel - 1) / kPanel; }
inline int64_t key_floats(int64_t head_dim) { return head_dim * kPage; }
inline int64_t head_floats(int64_t head_dim) {
  return key_floats(head_dim) + value_panels(head_dim) * kPanel * kPage;
}

// Element (slot, d) of a page's keys and values.
inline void write_slot(float* page, int64_t slot, int64_t head_dim, const float* k,
                       const float* v) {
  float* values = page + key_floats(head_dim);
  for (int64_t d = 0; d < head_dim; ++d) page[d * kPage + slot] = k[d];
  for (int64_t d = 0; d < head_dim; d += kPanel) {
    const int64_t width = std::min<int64_t>(kPanel, head_dim - d);
    std::memcpy(values + (d / kPanel) * kPage * kPanel + slot * kPanel, v + d,
                static_cast<size_t>(width) * sizeof(float));
  }
}

// Queries that stand one after another on one path, with one kv head: `heads` rows each.
struct QueryBlock {
  int64_t count, heads, head_dim;
  int64_t first_position;  // of the first query; the others follow
  const float* q;          // [count, heads, head_dim]
  int64_t q_stride;        // floats between queries
  float* const* pages;     // of the path, from position 0
  float* out;              // as q
  int64_t out_stride;
  float* lse;  // [count, heads] with lse_stride between queries, or null
  int64_t lse_stride;
};

// Turns scores[lo..hi) of one row into e and returns 1 / l's parts: the maximum and the sum.
struct RowSum {
  float max, sum;
};
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

// A block of at most kTileRows rows (queries x heads). `scores` holds kTileRows rows of `stride`
// floats.
inline void attend(const AttentionShape& shape, const QueryBlock& block, float* scores,
                   int64_t stride) {
  const int rows = static_cast<int>(block.count * block.heads);
  const int64_t dim = block.head_dim, last = block.first_position + block.count - 1;
  const auto low = [&](int64_t query) {
    const int64_t p = block.first_position + query;
    return shape.window > 0 ? std::max<int64_t>(0, p - shape.window + 1) : 0;
  };
  const auto row_of = [&](int64_t query, int64_t head) { return query * block.heads + head; };

  // Rows of one tile must be evenly spaced: queries beside each other are, unless other heads lie
  // between them.
  const float* q = block.q;
  std::vector<float> left;
  if (block.count > 1 && block.q_stride != block.heads * dim) {
    left.resize(static_cast<size_t>(rows * dim));
    for (int64_t i = 0; i < block.count; ++i)
      std::memcpy(left.data() + i * block.heads * dim, block.q + i * block.q_stride,
                  static_cast<size_t>(block.heads * dim) * 4);
    q = left.data();
  }
  for (int64_t page = low(0) / kPage; page <= last / kPage; ++page)
    tile_row(rows, kPage, dim, q, dim, 1, block.pages[page], 0, scores + page * kPage, stride,
             false);

  float sums[kTileRows];
  for (int64_t i = 0; i < block.count; ++i) {
    for (int64_t h = 0; h < block.heads; ++h) {
      const int64_t r = row_of(i, h);
      const RowSum s =
          exponentials(shape, scores + r * stride, low(i), block.first_position + i + 1);
      sums[r] = s.sum;
      if (block.lse) block.lse[i * block.lse_stride + h] = s.max + log_of(s.sum);
    }
  }

  // Values: pages that every row sees whole are one tile; the ragged first and last ones go query
  // by query, so that no key beyond a query's own is touched.
  const int64_t width = value_panels(dim) * kPanel;
  std::vector<float> sums_of_values(static_cast<size_t>(rows * width), 0.0f);
  float* o = sums_of_values.data();
  const auto add_values = [&](int64_t first_row, int count, int64_t from,
                              int64_t to) {  // keys [from, to) of one page
    const int64_t page = from / kPage;
    tile_row(count, width, to - from, scores + first_row * stride + from, stride, 1,
             block.pages[page] + key_floats(dim) + (from - page * kPage) * kPanel, kPage * kPanel,
             o + first_row * width, width, true);
  };
  const int64_t shared_from =
      (low(block.count - 1) + kPage - 1) / kPage;  // first page that all see from its start
  const int64_t shared_to =
      std::max(shared_from, (block.first_position + 1) / kPage);  // and the last to its end
  const int heads = static_cast<int>(block.heads);
  const auto ragged = [&](int64_t query, int64_t from, int64_t to) {
    while (from < to) {
      const int64_t stop = std::min(to, (from / kPage + 1) * kPage);
      add_values(query * block.heads, heads, from, stop);
      from = stop;
    }
  };
  for (int64_t i = 0; i < block.count; ++i)
    ragged(i, low(i), std::min(shared_from * kPage, block.first_position + i + 1));
  for (int64_t page = shared_from; page < shared_to; ++page)
    add_values(0, rows, page * kPage, (page + 1) * kPage);
  for (int64_t i = 0; i < block.count; ++i)
    ragged(i, std::max(low(i), shared_to * kPage), block.first_position + i + 1);

  for (int64_t i = 0; i < block.count; ++i)
    for (int64_t h = 0; h < block.heads; ++h) {
      const int64_t r = row_of(i, h);
      float* to = block.out + i * block.out_stride + h * dim;
      for (int64_t d = 0; d < dim; ++d) to[d] = o[r * width + d] / sums[r];
    }
}

// All of a block's rows, in tiles. Heads beyond a tile's rows (more than 6 or 12 to a kv head) are
// split.
inline void attend_all(const AttentionShape& shape, QueryBlock block, std::vector<float>& scores) {
  const int64_t last = block.first_position + block.count;
  const int64_t stride = (last + kPage - 1) / kPage * kPage;
  scores.resize(static_cast<size_t>(kTileRows * stride));
  for (int64_t h = 0; h < block.heads; h += kTileRows) {
    const int64_t heads = std::min<int64_t>(kTileRows, block.heads - h),
                  at_once = std::max<int64_t>(1, kTileRows / heads);
    for (int64_t i = 0; i < block.count; i += at_once) {
      QueryBlock part = block;
      part.heads = heads;
      part.count = std::min(at_once, block.count - i);
      part.first_position = block.first_position + i;
      part.q = block.q + i * block.q_stride + h * block.head_dim;
      part.out = block.out + i * block.out_stride + h * block.head_dim;
      part.lse = block.lse ? block.lse + i * block.lse_stride + h : nullptr;
      attend(shape, part, scores.data(), stride);
    }
  }
}

// The tokens on a segment's path, itself included, in order of position.
inline std::vector<int64_t> path_tokens(const ForestView& forest, int64_t segment) {
  std::vector<int64_t> chain, tokens;
  for (int64_t s = segment; s >= 0; s = forest.parent[s]) chain.push_back(s);
  for (auto s = chain.rbegin(); s != chain.rend(); ++s)
    for (int64_t t = forest.segment_start[*s]; t < forest.segment_start[*s + 1]; ++t)
      tokens.push_back(t);
  return tokens;
}

void Attention(const AttentionShape& shape, const ForestView& forest, const float* q,
               const float* k, const float* v, float* out, float* lse) {
  const int64_t heads = shape.num_heads, kv_heads = shape.num_kv_heads, dim = shape.head_dim,
                group = heads / kv_heads;
#pragma omp parallel
  {
    std::vector<float> storage, scores;
    std::vector<float*> pages;
#pragma omp for collapse(2) schedule(dynamic)
    for (int64_t s = 0; s < forest.num_segments; ++s) {
      for (int64_t g = 0; g < kv_heads; ++g) {
        const std::vector<int64_t> path = path_tokens(forest, s);
        const int64_t length = static_cast<int64_t>(path.size()),
                      num_pages = (length + kPage - 1) / kPage;
        const int64_t own = forest.segment_start[s + 1] - forest.segment_start[s],
                      first = length - own;
        storage.resize(static_cast<size_t>(num_pages * head_floats(dim)));
        pages.resize(static_cast<size_t>(num_pages));
        for (int64_t p = 0; p < num_pages; ++p) pages[p] = storage.data() + p * head_floats(dim);
        const int64_t oldest =
            shape.window > 0 ? std::max<int64_t>(0, first - shape.window + 1) : 0;
        for (int64_t j = oldest; j < length; ++j)
          write_slot(pages[j / kPage], j % kPage, dim, k + (path[j] * kv_heads + g) * dim,
                     v + (path[j] * kv_heads + g) * dim);
        const int64_t token = forest.segment_start[s];
        attend_all(shape,
                   {own, group, dim, first, q + (token * heads + g * group) * dim, heads * dim,
                    pages.data(), out + (token * heads + g * group) * dim, heads * dim,
                    lse ? lse + token * heads + g * group : nullptr, heads},
                   scores);
      }
    }
  }
}

int64_t PageTokens() { return kPage; }
int64_t PageFloats(const AttentionShape& shape) {
  return shape.num_kv_heads * head_floats(shape.head_dim);
}

void WritePages(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                const float* k, const float* v) {
  const int64_t kv_heads = shape.num_kv_heads, dim = shape.head_dim;
  for (int64_t i = 0; i < num_tokens; ++i)
    for (int64_t g = 0; g < kv_heads; ++g)
      write_slot(rows[i].pages[rows[i].position / kPage] + g * head_floats(dim),
                 rows[i].position % kPage, dim, k + (i * kv_heads + g) * dim,
                 v + (i * kv_heads + g) * dim);
}

void AttentionCached(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                     const float* q, float* out) {
  const int64_t heads = shape.num_heads, kv_heads = shape.num_kv_heads, dim = shape.head_dim,
                group = heads / kv_heads;
  // Runs of consecutive positions of one sequence share tiles.
  std::vector<int64_t> runs{0};
  for (int64_t i = 1; i <= num_tokens; ++i) {
    const bool follows = i < num_tokens && rows[i].pages == rows[i - 1].pages &&
                         rows[i].position == rows[i - 1].position + 1;
    if (!follows || i - runs.back() == 64) runs.push_back(i);
  }
  const int64_t num_runs = static_cast<int64_t>(runs.size()) - 1;
#pragma omp parallel
  {
    std::vector<float> scores;
    std::vector<float*> pages;
#pragma omp for collapse(2) schedule(dynamic)
    for (int64_t r = 0; r < num_runs; ++r) {
      for (int64_t g = 0; g < kv_heads; ++g) {
        const int64_t token = runs[r], count = runs[r + 1] - token;
        const int64_t num_pages = (rows[token].position + count - 1) / kPage + 1;
        pages.resize(static_cast<size_t>(num_pages));
        for (int64_t p = 0; p < num_pages; ++p)
          pages[p] = rows[token].pages[p] + g * head_floats(dim);
        attend_all(shape,
                   {count, group, dim, rows[token].position, q + (token * heads + g * group) * dim,
                    heads * dim, pages.data(), out + (token * heads + g * group) * dim, heads * dim,
                    nullptr, 0},
                   scores);
      }
    }
  }
}

// A product inside one thread: c[m, n] (+)= a[m, depth] b, b in panels of [depth][kPanel].
inline void small_product(int64_t m, int64_t n, int64_t depth, const float* a, int64_t a_row,
                          int64_t a_k, const float* b, int64_t panel_stride, float* c, int64_t ldc,
                          bool accumulate) {
  for (int64_t i = 0; i < m; i += kTileRows)
    tile_row(static_cast<int>(std::min<int64_t>(kTileRows, m - i)), n, depth, a + i * a_row, a_row,
             a_k, b, panel_stride, c + i * ldc, ldc, accumulate);
}

// rows of x [count, dim] with a stride -> panels [dim / kPanel][count][kPanel]; the padding is
// zero.
inline void pack_rows(int64_t count, int64_t dim, const float* const* rows, float* panels) {
  for (int64_t d = 0; d < dim; d += kPanel) {
    const int64_t width = std::min<int64_t>(kPanel, dim - d);
    float* to = panels + d / kPanel * count * kPanel;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * kPanel, rows[i] + d, static_cast<size_t>(width) * 4);
      std::fill(to + i * kPanel + width, to + (i + 1) * kPanel, 0.0f);
    }
  }
}

// rows of x [count, dim] -> the transposed panels [count / kPanel][dim][kPanel]; the padding is
// zero.
inline void pack_columns(int64_t count, int64_t dim, const float* const* rows, float* panels) {
  for (int64_t j = 0; j < count; j += kPanel) {
    const int64_t width = std::min<int64_t>(kPanel, count - j);
    float* to = panels + j * dim;
    if (width < kPanel) std::fill(to, to + kPanel * dim, 0.0f);
    for (int64_t i = 0; i < width; ++i)
      for (int64_t d = 0; d < dim; ++d) to[d * kPanel + i] = rows[j + i][d];
  }
}

// The gradient of one tree and one kv head; a thread owns it, so every sum has one order. Scratch
// is reused.
struct TreeGradient {
  const AttentionShape& shape;
  const ForestView& forest;
  const float *q, *k, *v, *out, *lse, *dout;
  float *dq, *dk, *dv;
  std::vector<float> key_columns, key_panels, value_columns, dkeys, dvalues, probability, dscore,
      q_panels, dout_panels;
  std::vector<const float*> rows;

  void run(int64_t root, int64_t g) {
    for (int64_t s = root; s < forest.subtree_end[root]; ++s) segment(s, g);
  }

 private:
  static constexpr int64_t kQueries = 4 * 12;

  const float* const* gather(const std::vector<int64_t>& tokens, const float* x, int64_t row_stride,
                             int64_t offset) {
    rows.resize(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) rows[i] = x + tokens[i] * row_stride + offset;
    return rows.data();
  }

  void segment(int64_t s, int64_t g) {
    const int64_t dim = shape.head_dim, kv_row = shape.num_kv_heads * dim,
                  group = shape.num_heads / shape.num_kv_heads;
    const std::vector<int64_t> path = path_tokens(forest, s);
    const int64_t length = static_cast<int64_t>(path.size()),
                  padded = (length + kPanel - 1) / kPanel * kPanel;
    const int64_t wide = value_panels(dim) * kPanel;
    const int64_t own = forest.segment_start[s + 1] - forest.segment_start[s], first = length - own;
    key_columns.resize(static_cast<size_t>(padded * dim));
    value_columns.resize(static_cast<size_t>(padded * dim));
    key_panels.resize(static_cast<size_t>(length * wide));
    pack_columns(length, dim, gather(path, k, kv_row, g * dim), key_columns.data());
    pack_rows(length, dim, rows.data(), key_panels.data());
    pack_columns(length, dim, gather(path, v, kv_row, g * dim), value_columns.data());
    dkeys.assign(static_cast<size_t>(length * dim), 0.0f);
    dvalues.assign(static_cast<size_t>(length * dim), 0.0f);
    probability.resize(static_cast<size_t>(kQueries * padded));
    dscore.resize(static_cast<size_t>(kQueries * padded));
    for (int64_t h = g * group; h < (g + 1) * group; ++h)
      for (int64_t i = 0; i < own; i += kQueries)
        queries(forest.segment_start[s] + i, std::min(kQueries, own - i), first + i, h, length,
                padded);
    for (int64_t j = 0; j < length; ++j) {
      float* to_k = dk + path[j] * kv_row + g * dim;
      float* to_v = dv + path[j] * kv_row + g * dim;
      for (int64_t d = 0; d < dim; ++d) to_k[d] += dkeys[static_cast<size_t>(j * dim + d)];
      for (int64_t d = 0; d < dim; ++d) to_v[d] += dvalues[static_cast<size_t>(j * dim + d)];
    }
  }

  // `count` queries from `token` on, the first at `position`, head h.
  void queries(int64_t token, int64_t count, int64_t position, int64_t h, int64_t length,
               int64_t padded) {
    const int64_t dim = shape.head_dim, row = shape.num_heads * dim,
                  wide = value_panels(dim) * kPanel;
    const int64_t hi = position + count;  // one past the last key that any of them sees
    const int64_t lo =
        shape.window > 0 ? std::max<int64_t>(0, position - shape.window + 1) / kPanel * kPanel : 0;
    const float* q0 = q + token * row + h * dim;
    const float* dout0 = dout + token * row + h * dim;
    float* p = probability.data();
    float* ds = dscore.data();
    // Columns [lo, hi) of S and dP; a panel's tail beyond hi is computed and not used.
    const int64_t columns = (hi - lo + kPanel - 1) / kPanel * kPanel;
    small_product(count, columns, dim, q0, row, 1, key_columns.data() + lo * dim, kPanel * dim,
                  p + lo, padded, false);
    small_product(count, columns, dim, dout0, row, 1, value_columns.data() + lo * dim, kPanel * dim,
                  ds + lo, padded, false);
    for (int64_t i = 0; i < count; ++i)
      softmax_row(token + i, position + i, h, lo, hi, p + i * padded, ds + i * padded);
    q_panels.resize(static_cast<size_t>(kQueries * wide));
    dout_panels.resize(static_cast<size_t>(kQueries * wide));
    rows.resize(static_cast<size_t>(std::max(count, length)));
    for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = q0 + i * row;
    pack_rows(count, dim, rows.data(), q_panels.data());
    for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = dout0 + i * row;
    pack_rows(count, dim, rows.data(), dout_panels.data());
    // dV += Pᵀ dO, dK += dSᵀ Q, dQ = dS K.
    small_product(hi - lo, dim, count, p + lo, 1, padded, dout_panels.data(), count * kPanel,
                  dvalues.data() + lo * dim, dim, true);
    small_product(hi - lo, dim, count, ds + lo, 1, padded, q_panels.data(), count * kPanel,
                  dkeys.data() + lo * dim, dim, true);
    small_product(count, dim, hi - lo, ds + lo, padded, 1, key_panels.data() + lo * kPanel,
                  length * kPanel, dq + token * row + h * dim, row, false);
  }

  // Scores become probabilities, dP becomes dS = P (dP - Σ_d dO O) with the derivatives of soft cap
  // and scale.
  void softmax_row(int64_t token, int64_t position, int64_t h, int64_t lo, int64_t hi, float* p,
                   float* ds) const {
    const int64_t at = (token * shape.num_heads + h) * shape.head_dim;
    const float scale = static_cast<float>(shape.scale), cap = static_cast<float>(shape.soft_cap);
    const float log_sum = lse[token * shape.num_heads + h];
    const float delta = sum16<float>(0, shape.head_dim, [&](int64_t d, float sum) {
      return std::fma(dout[at + d], out[at + d], sum);
    });
    const int64_t from = shape.window > 0 ? std::max<int64_t>(lo, position - shape.window + 1) : lo;
    std::fill(p + lo, p + from, 0.0f);
    std::fill(ds + lo, ds + from, 0.0f);
    if (cap > 0) {
      for (int64_t j = from; j <= position; ++j) {
        const float t = tanh_of(p[j] * scale / cap);
        p[j] = exp_of(cap * t - log_sum);
        ds[j] = p[j] * (ds[j] - delta) * (1.0f - t * t) * scale;
      }
    } else {
      for (int64_t j = from; j <= position; ++j) {
        p[j] = exp_of(p[j] * scale - log_sum);
        ds[j] = p[j] * (ds[j] - delta) * scale;
      }
    }
    std::fill(p + position + 1, p + hi, 0.0f);
    std::fill(ds + position + 1, ds + hi, 0.0f);
  }
};

void AttentionBackward(const AttentionShape& shape, const ForestView& forest, const float* q,
                       const float* k, const float* v, const float* out, const float* lse,
                       const float* dout, float* dq, float* dk, float* dv) {
  const size_t kv_bytes =
      static_cast<size_t>(forest.num_tokens * shape.num_kv_heads * shape.head_dim) * sizeof(float);
  std::memset(dk, 0, kv_bytes);
  std::memset(dv, 0, kv_bytes);
  std::vector<int64_t> roots;
  for (int64_t s = 0; s < forest.num_segments; s = forest.subtree_end[s]) roots.push_back(s);
#pragma omp parallel
  {
    TreeGradient gradient{shape, forest, q,  k,  v,  out, lse, dout, dq, dk, dv,
                          {},    {},     {}, {}, {}, {},  {},  {},   {}, {}};
#pragma omp for collapse(2) schedule(dynamic)
    for (size_t r = 0; r < roots.size(); ++r)
      for (int64_t g = 0; g < shape.num_kv_heads; ++g) gradient.run(roots[r], g);
  }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::kernels {
HWY_EXPORT(Attention);
HWY_EXPORT(AttentionBackward);
HWY_EXPORT(PageTokens);
HWY_EXPORT(PageFloats);
HWY_EXPORT(WritePages);
HWY_EXPORT(AttentionCached);

int64_t page_tokens() { return HWY_DYNAMIC_DISPATCH(PageTokens)(); }
int64_t page_floats(const AttentionShape& shape) { return HWY_DYNAMIC_DISPATCH(PageFloats)(shape); }
void write_pages(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                 const float* k, const float* v) {
  HWY_DYNAMIC_DISPATCH(WritePages)(shape, num_tokens, rows, k, v);
}
void attention_cached(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                      const float* q, float* out) {
  HWY_DYNAMIC_DISPATCH(AttentionCached)(shape, num_tokens, rows, q, out);
}
template <>
void attention(const AttentionShape& shape, const ForestView& forest, const double* q,
               const double* k, const double* v, double* out, double* lse) {
  reference_attention<double, DoubleMath>(shape, forest, q, k, v, out, lse);
}
template <>
void attention_backward(const AttentionShape& shape, const ForestView& forest, const double* q,
                        const double* k, const double* v, const double* out, const double* lse,
                        const double* dout, double* dq, double* dk, double* dv) {
  reference_attention_backward<double, DoubleMath>(shape, forest, q, k, v, out, lse, dout, dq, dk,
                                                   dv);
}
template <>
void attention(const AttentionShape& shape, const ForestView& forest, const float* q,
               const float* k, const float* v, float* out, float* lse) {
  HWY_DYNAMIC_DISPATCH(Attention)(shape, forest, q, k, v, out, lse);
}
template <>
void attention_backward(const AttentionShape& shape, const ForestView& forest, const float* q,
                        const float* k, const float* v, const float* out, const float* lse,
                        const float* dout, float* dq, float* dk, float* dv) {
  HWY_DYNAMIC_DISPATCH(AttentionBackward)(shape, forest, q, k, v, out, lse, dout, dq, dk, dv);
}

}  // namespace temper::kernels
#endif
