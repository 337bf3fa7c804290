// Attention by the flash kernels of LibTorch (FlashAttention-2, Dao, arXiv 2307.08691): scores are
// never in memory. Numbers go in and out as bfloat16, sums are float32.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "temper/ops/aten/padded_attention.h"
#include "temper/ops/layers/attention.h"

namespace temper::ops::aten_impl {

// B sequences of queries, each on keys of its own. All rows of queries are distinct, and so are
// those of keys.
constexpr int64_t kMostFlashSequences = 65535;  // B at most, as it is a dimension of their grid
struct FlashBatch {
  at::Tensor query_row, key_row;      // the rows that take part, in order; undefined: all
  at::Tensor query_start, key_start;  // [B + 1] int32: where each sequence begins among them
  int64_t longest_query = 0, longest_key = 0;
  // The last query of a sequence sees every key, and each before it one fewer; false: every query
  // sees all keys.
  bool causal = true;
};

// Whether these layers of a pass in float32 may be computed so: their arithmetic may round, keys
// and values are not rounded to float16 already, scores have no soft cap, and the device has
// kernels for the heads.
bool takes_flash_attention(const AttentionSpec& spec, at::Device device);

// Whether the device has the kernels, of this head_dim. A device of a kind that is asked is tried
// with one row, once. TEMPER_FLASH_ATTENTION=off in the environment: none has.
bool has_flash_attention(at::Device device, int64_t head_dim);

// Which kinds of devices are asked: CUDA. Tests add one whose kernels they emulate.
void ask_for_flash_attention(at::DeviceType kind, bool asked);

// The kernels' inputs, and the backward pass's values of whole rows, in bfloat16: q, out, dout [N,
// num_heads, head_dim], k and v [N, num_kv_heads, head_dim]; log_sum_exp [N, num_heads] float32.
struct FlashInputs {
  at::Tensor q, k, v, out, log_sum_exp, dout;
};

// Attention of the rows query_row, in float32: out [n, num_heads, head_dim] and log_sum_exp [n,
// num_heads]. A window of the spec counts where the batch is causal.
PaddedResult flash_attention(const AttentionSpec& spec, const FlashBatch& batch,
                             const FlashInputs& in);
// Adds the gradients of the batch's scores to float32 ones. With the output and the log-sum-exp of
// whole rows the sum over all batches of a row is its gradient, as P = exp(score - log_sum_exp) and
// D = Σ_d dout out are those of the row (equation 4 of arXiv 2205.14135, appendix B.2).
void flash_attention_backward(const AttentionSpec& spec, const FlashBatch& batch,
                              const FlashInputs& in, PaddedGradients& gradients);

// Whether the kernels may read keys and values of such layers from a cache's pages
// (PagedAttention, arXiv 2309.06180): what is cached is bfloat16, and LibTorch is 2.12 or newer.
bool reads_flash_pages(const AttentionSpec& spec, at::Device device);

// B sequences of queries, in order, each on the keys of its pages; the last query of each sees all
// keys.
struct PagedFlashBatch {
  at::Tensor query_start;  // [B + 1] int32: where each sequence begins among the rows
  at::Tensor key_start;    // [B + 1] int32: sums of `keys`, as the kernels demand
  at::Tensor keys;         // [B] int32: how many positions are filled
  at::Tensor page;         // [B, most pages of a sequence] int32
  int64_t longest_query = 0, longest_key = 0;
};
// q [rows, num_heads, head_dim] float32; keys and values [pages, tokens of a page: a multiple of
// 256, num_kv_heads, head_dim] -> of each row, float32. A window counts, sinks do not.
PaddedResult paged_flash_attention(const AttentionSpec& spec, const PagedFlashBatch& batch,
                                   const at::Tensor& q, const at::Tensor& keys,
                                   const at::Tensor& values);

}  // namespace temper::ops::aten_impl
