// Logits of the vocabulary in blocks of its columns: what every loss that reads them is made of, so
// that no [N, vocabulary] tensor exists.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/rows.h"
#include "temper/ops/token_logp.h"

namespace temper::ops {

constexpr int64_t kColumns = 4 * kernels::kVocabularyBlock;  // of the vocabulary at once
constexpr int64_t kRows = 256;  // of hidden at once: kRows x kColumns logits are 2 MB

// Logits of one chunk: x[rows, columns] = cap and temperature of hidden weightᵀ.
template <class T>
void chunk_logits(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                  at::Tensor& x) {
  multiply(hidden, weight, x);
  T* data = x.mutable_data_ptr<T>();
  if (spec.soft_cap > 0)
    kernels::row_kernels<T>().soft_cap(x.numel(), static_cast<T>(spec.soft_cap), data);
  if (spec.temperature != 1) {
    const T temperature = static_cast<T>(spec.temperature);
    for (int64_t i = 0; i < x.numel(); ++i) data[i] /= temperature;
  }
}

// One block of the vocabulary: the weight's rows from `first` on, packed if there are `rows` to
// multiply.
inline Weight block_of(const Weight& weight, int64_t first, int64_t rows) {
  Weight part = weight.part(first, std::min(kColumns, weight.out() - first));
  if (rows > 0 && !part.panels.defined()) part.panels = pack(part);
  return part;
}

// Calls body(first column, that block of the weight) for each block of the vocabulary.
template <class Body>
void each_block(const Weight& weight, int64_t rows, Body body) {
  for (int64_t first = 0; first < weight.out(); first += kColumns)
    body(first, block_of(weight, first, rows));
}

}  // namespace temper::ops
