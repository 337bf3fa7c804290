// Attention over the sampler's pages. Included once for each SIMD target.
#if defined(TEMPER_ATTENTION_CACHED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ATTENTION_CACHED_INL_H
#undef TEMPER_ATTENTION_CACHED_INL_H
#else
#define TEMPER_ATTENTION_CACHED_INL_H
#endif

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "temper/ops/native/kernels/attention/attention_forward-inl.h"
#include "temper/ops/native/kernels/attention/attention_keys-inl.h"
#include "temper/ops/native/kernels/attention/attention_runs-inl.h"
#include "temper/ops/native/kernels/loops.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

int64_t PageTokens() { return kPage; }
int64_t PageBytes(const AttentionShape& shape) {
  const int64_t values =
      shape.values_in_keys ? row_values(shape.head_dim) : head_values(shape.head_dim);
  return shape.num_kv_heads * values * bytes_of(shape.cache_dtype);
}

template <class B>
void write_pages_of(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                    const float* k, const float* v) {
  const int64_t kv_heads = shape.num_kv_heads, dim = shape.head_dim;
  for_each_index(num_tokens * kv_heads, num_tokens * kv_heads * dim > 8192, [=](int64_t of) {
    const int64_t i = of / kv_heads, g = of % kv_heads;
    B* page = static_cast<B*>(rows[i].pages[rows[i].position / kPage]) + g * head_values(dim);
    const int64_t slot = rows[i].position % kPage, at = of * dim;
    write_column(page, slot, dim, k + at);
    write_row(page + column_values(dim), kPage, slot, dim, v + at);
  });
}

// The blocks of one family and kv head: what a thread attends to at once.
template <class B>
struct CachedWork {
  std::vector<std::vector<const B*>> tables = std::vector<std::vector<const B*>>(kTileRows);
  std::vector<std::vector<OpenPositions>> open = std::vector<std::vector<OpenPositions>>(kTileRows);
  std::vector<QueryBlock<B>> blocks;
  int64_t shared = 0;  // pages

  // Always true for a family; a single run may be a chunk of a prompt.
  bool one_tile() const {
    return blocks.size() > 1 || blocks[0].count * blocks[0].heads <= kTileRows;
  }
};

template <class B>
void attention_over_pages_of(const AttentionShape& shape, int64_t num_tokens,
                             const CachedQuery* rows, const float* q, float* out, float* lse) {
  int64_t longest = 0;
  bool opens = false;
  for (int64_t i = 0; i < num_tokens; ++i) {
    longest = std::max(longest, rows[i].open.end);
    opens |= rows[i].open.end > rows[i].position + 1;
  }
  const int64_t seen = most_seen(shape, longest, opens);
  const std::vector<CachedRun> runs = runs_of(num_tokens, rows, chunk_of(shape, seen));
  const int64_t group = shape.num_heads / shape.num_kv_heads, kv_heads = shape.num_kv_heads;
  const std::vector<RunFamily> families = families_of(shape, runs, rows, kTileRows / group);
  const int64_t per_thread = std::max(scratch_floats(shape.head_dim, longest),
                                      RowBlock<B>::scratch_floats(shape.head_dim, seen));
  const Floats scratch = allocate(omp_get_max_threads() * per_thread);

  const int64_t items = static_cast<int64_t>(families.size()) * kv_heads;
  const auto prepare = [&](int64_t item, CachedWork<B>& work) {
    work.blocks.clear();
    if (item >= items) return;
    const RunFamily& family = families[static_cast<size_t>(item / kv_heads)];
    const int64_t g = item % kv_heads;
    work.shared = family.shared;
    for (size_t r = family.begin; r < family.end; ++r) {
      const int64_t token = runs[r].begin, count = runs[r].end - token,
                    position = rows[token].position;
      std::vector<const B*>& table = work.tables[work.blocks.size()];
      std::vector<OpenPositions>& open = work.open[work.blocks.size()];
      open.clear();
      for (int64_t i = token; i < token + count; ++i) open.push_back(rows[i].open);
      table.resize(static_cast<size_t>(pages_of(open.back().end)));
      for (size_t p = 0; p < table.size(); ++p)
        table[p] = static_cast<const B*>(rows[token].pages[p]) + g * head_values(shape.head_dim);
      work.blocks.push_back(block_of<B>(shape, token, count, position, g, q, out, lse));
      work.blocks.back().pages = table.data();
      work.blocks.back().open = open.data();
    }
  };
  // Threads take what to do one item ahead, so that its pages can be fetched ahead. Each has a
  // first item of its own: few items are spread over all threads.
  std::atomic<int64_t> taken{0};
#pragma omp parallel
  {
    float* own = scratch.get() + omp_get_thread_num() * per_thread;
    CachedWork<B> both[2], *work = &both[0], *next = &both[1];
    ReadAhead<B> ahead;
    const int64_t firsts = omp_get_num_threads();
    prepare(omp_get_thread_num(), *work);
    for (; !work->blocks.empty(); std::swap(work, next)) {
      prepare(firsts + taken++, *next);
      if (work->one_tile()) {
        ahead.start(shape.head_dim);
        add_reads<B>(shape, work->blocks, work->shared, ahead);
        if (!next->blocks.empty()) add_reads<B>(shape, next->blocks, next->shared, ahead);
        attend<B>(shape, work->blocks, work->shared, own, &ahead);
      } else {
        attend_all(shape, work->blocks[0], seen, own);
      }
    }
  }
}

void WritePages(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                const float* k, const float* v) {
  with_cached_type(shape.cache_dtype, [&](auto type) {
    using B = decltype(type);
    if (shape.values_in_keys)
      write_key_pages<B>(shape, num_tokens, rows, k);
    else
      write_pages_of<B>(shape, num_tokens, rows, k, v);
  });
}

void AttentionCached(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                     const float* q, float* out, float* lse) {
  with_cached_type(shape.cache_dtype, [&](auto type) {
    using B = decltype(type);
    if (shape.values_in_keys)
      attention_over_key_pages<B>(shape, num_tokens, rows, q, out, lse);
    else
      attention_over_pages_of<B>(shape, num_tokens, rows, q, out, lse);
  });
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
