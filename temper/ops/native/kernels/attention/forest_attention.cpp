// Dispatch of forest_attention.h to the machine's SIMD target.
#include "temper/ops/native/kernels/attention/forest_attention.h"

#include "temper/base/exact_math.h"
#include "temper/ops/native/kernels/attention/reference_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/native/kernels/attention/forest_attention.cpp"
#include "temper/ops/native/kernels/targets.h"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "temper/ops/native/kernels/attention/attention_backward-inl.h"
#include "temper/ops/native/kernels/attention/attention_cached-inl.h"
#include "temper/ops/native/kernels/attention/attention_forward-inl.h"
// clang-format on

#if HWY_ONCE
namespace temper::kernels {
HWY_EXPORT(Attention);
HWY_EXPORT(AttentionBytes);
HWY_EXPORT(AttentionBackward);
HWY_EXPORT(PageTokens);
HWY_EXPORT(PageBytes);
HWY_EXPORT(RoundTo);
HWY_EXPORT(WritePages);
HWY_EXPORT(AttentionCached);

AttentionMemory attention_memory(const AttentionShape& shape, const ForestView& forest) {
  return HWY_DYNAMIC_DISPATCH(AttentionBytes)(shape, forest);
}
int64_t page_tokens() { return HWY_DYNAMIC_DISPATCH(PageTokens)(); }
int64_t page_bytes(const AttentionShape& shape) { return HWY_DYNAMIC_DISPATCH(PageBytes)(shape); }
void round_to(CacheDtype dtype, int64_t count, float* x) {
  HWY_DYNAMIC_DISPATCH(RoundTo)(dtype, count, x);
}
void write_pages(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                 const float* k, const float* v) {
  HWY_DYNAMIC_DISPATCH(WritePages)(shape, num_tokens, rows, k, v);
}
void attention_cached(const AttentionShape& shape, int64_t num_tokens, const CachedQuery* rows,
                      const float* q, float* out, float* lse) {
  HWY_DYNAMIC_DISPATCH(AttentionCached)(shape, num_tokens, rows, q, out, lse);
}
template <class T>
void join_sinks(const AttentionShape& shape, int64_t num_tokens, const T* sinks, T* out, T* lse) {
  const int64_t heads = shape.num_heads, dim = shape.head_dim;
#pragma omp parallel for schedule(static) if (num_tokens * heads * dim > 32768)
  for (int64_t i = 0; i < num_tokens * heads; ++i) {
    const double before = static_cast<double>(lse[i]), sink = static_cast<double>(sinks[i % heads]),
                 more = exact::quick_exp(sink - before);
    const T share = static_cast<T>(1 / (1 + more));
    for (int64_t d = i * dim; d < (i + 1) * dim; ++d) out[d] *= share;
    lse[i] =
        static_cast<T>(sink > before ? sink + exact::quick_log1p(exact::quick_exp(before - sink))
                                     : before + exact::quick_log1p(more));
  }
}
template void join_sinks(const AttentionShape&, int64_t, const float*, float*, float*);
template void join_sinks(const AttentionShape&, int64_t, const double*, double*, double*);
template <>
void attention(const AttentionShape& shape, const ForestView& forest, QueryRange queries,
               const double* q, const double* k, const double* v, double* out, double* lse) {
  reference_attention<double, DoubleMath>(shape, forest, queries, q, k, v, out, lse);
}
template <>
void attention_backward(const AttentionShape& shape, const ForestView& forest, QueryRange queries,
                        const double* q, const double* k, const double* v, const double* out,
                        const double* lse, const double* dout, double* dq, double* dk, double* dv) {
  reference_attention_backward<double, DoubleMath>(shape, forest, queries, q, k, v, out, lse, dout,
                                                   dq, dk, dv);
}
template <>
void attention(const AttentionShape& shape, const ForestView& forest, QueryRange queries,
               const float* q, const float* k, const float* v, float* out, float* lse) {
  HWY_DYNAMIC_DISPATCH(Attention)(shape, forest, queries, q, k, v, out, lse);
}
template <>
void attention_backward(const AttentionShape& shape, const ForestView& forest, QueryRange queries,
                        const float* q, const float* k, const float* v, const float* out,
                        const float* lse, const float* dout, float* dq, float* dk, float* dv) {
  HWY_DYNAMIC_DISPATCH(AttentionBackward)
  (shape, forest, queries, q, k, v, out, lse, dout, dq, dk, dv);
}

}  // namespace temper::kernels
#endif
