// Attention over the sampler's pages. Included once for each SIMD target.
#if defined(TEMPER_ATTENTION_CACHED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ATTENTION_CACHED_INL_H
#undef TEMPER_ATTENTION_CACHED_INL_H
#else
#define TEMPER_ATTENTION_CACHED_INL_H
#endif

#include <omp.h>

#include <algorithm>
#include <vector>

#include "temper/ops/cpu/attention_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

int64_t PageTokens() { return kPage; }
int64_t PageBytes(const AttentionShape& shape) {
  return shape.num_kv_heads * head_values(shape.head_dim) * bytes_of(shape.cache);
}

template <class B>
void write_pages_of(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                    const float* k, const float* v) {
  const int64_t kv_heads = shape.num_kv_heads, dim = shape.head_dim;
#pragma omp parallel for schedule(static) if (num_tokens * kv_heads * dim > 65536)
  for (int64_t g = 0; g < kv_heads; ++g)
    for (int64_t i = 0; i < num_tokens; ++i) {
      B* page = static_cast<B*>(rows[i].pages[rows[i].position / kPage]) + g * head_values(dim);
      const int64_t slot = rows[i].position % kPage, at = (i * kv_heads + g) * dim;
      write_column(page, slot, dim, k + at);
      write_row(page + column_values(dim), kPage, slot, dim, v + at);
    }
}

template <class B>
void attention_over_pages_of(const AttentionShape& shape, int64_t num_tokens,
                             const CachedQuery* rows, const float* q, float* out) {
  // Runs of consecutive positions of one sequence share tiles.
  std::vector<int64_t> runs;
  int64_t longest = 0;
  for (int64_t i = 0; i < num_tokens; ++i) {
    const bool follows = i > 0 && rows[i].pages == rows[i - 1].pages &&
                         rows[i].position == rows[i - 1].position + 1 && i - runs.back() < kChunk;
    if (!follows) runs.push_back(i);
    longest = std::max(longest, rows[i].position + 1);
  }
  runs.push_back(num_tokens);
  const int64_t per_thread = scratch_floats(shape.head_dim, longest);
  const Floats scratch = allocate(omp_get_max_threads() * per_thread);
#pragma omp parallel
  {
    std::vector<const B*> table;
#pragma omp for collapse(2) schedule(dynamic)
    for (size_t r = 0; r < runs.size() - 1; ++r)
      for (int64_t g = 0; g < shape.num_kv_heads; ++g) {
        const int64_t token = runs[r], count = runs[r + 1] - token;
        const int64_t position = rows[token].position;
        table.resize(static_cast<size_t>(pages_of(position + count)));
        for (size_t p = 0; p < table.size(); ++p)
          table[p] = static_cast<const B*>(rows[token].pages[p]) + g * head_values(shape.head_dim);
        QueryBlock<B> block = block_of<B>(shape, token, count, position, g, q, out, nullptr);
        block.pages = table.data();
        attend_all(shape, block, scratch.get() + omp_get_thread_num() * per_thread);
      }
  }
}

void WritePages(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                const float* k, const float* v) {
  with_cached_type(shape.cache, [&](auto type) {
    write_pages_of<decltype(type)>(shape, num_tokens, rows, k, v);
  });
}

void AttentionCached(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                     const float* q, float* out) {
  with_cached_type(shape.cache, [&](auto type) {
    attention_over_pages_of<decltype(type)>(shape, num_tokens, rows, q, out);
  });
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
