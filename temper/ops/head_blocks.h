// Logits of the vocabulary in blocks of its columns: what every loss that reads them is made of, so
// that no [N, vocabulary] tensor exists.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/rows.h"
#include "temper/ops/product.h"
#include "temper/ops/token_logp.h"

namespace temper::ops {

constexpr int64_t kColumns = 8 * kernels::kVocabularyBlock;  // of the vocabulary at once
constexpr int64_t kRows = 512;  // of hidden at once: kRows x kColumns logits are 8 MB

// Logits of one chunk: x[rows, columns] = cap and temperature of hidden weightᵀ.
template <class T>
void chunk_logits(const HeadSpec& spec, const at::Tensor& hidden, const at::Tensor& weight,
                  const at::Tensor& panels, at::Tensor& x) {
  product({hidden}, {weight, true, spec.bfloat16}, x, false, {}, panels);
  T* data = x.mutable_data_ptr<T>();
  if (spec.soft_cap > 0)
    kernels::row_kernels<T>().soft_cap(x.numel(), static_cast<T>(spec.soft_cap), data);
  if (spec.temperature != 1) {
    const T temperature = static_cast<T>(spec.temperature);
    for (int64_t i = 0; i < x.numel(); ++i) data[i] /= temperature;
  }
}

// Calls body(first column, weight's rows, their panels or undefined) for each block of the
// vocabulary.
template <class Body>
void each_block(const HeadSpec& spec, const at::Tensor& weight, int64_t rows, Body body) {
  const int64_t vocabulary = weight.size(0);
  for (int64_t first = 0; first < vocabulary; first += kColumns) {
    const at::Tensor part = weight.narrow(0, first, std::min(kColumns, vocabulary - first));
    at::Tensor panels;
    if (spec.panels.defined())
      panels = spec.panels.narrow(0, first * weight.size(1),
                                  spec.panels.numel() - first * weight.size(1));
    else if (rows > 0)
      panels = pack({part, true, spec.bfloat16});
    body(first, part, panels);
  }
}

}  // namespace temper::ops
