// The memory of a forward and a backward pass, tensor by tensor: the sizes follow from what the
// functions of temper/ops keep for their backward pass (temper/ops/layers/linear.h, attention.cpp,
// token_logp.cpp).
#pragma once

#include <cstdint>

#include "temper/check/memory/run_shape.h"

namespace temper::checks {

// The bytes that jemalloc allocates for a request, by its size classes: four to each doubling. The
// memory of a freed tensor is used again for others, so that in time all of it is resident.
int64_t allocated_bytes(int64_t asked);

inline constexpr int64_t kFloat = 4;  // bytes of a float32

// True where the role's adapters change the product by this weight.
bool is_adapted(const ModelRole& role, const ShapedTensor& t);

// Bytes that tensors ask for, and that the allocator gives them.
struct TensorBytes {
  int64_t asked = 0, given = 0;
  void add(int64_t bytes) {
    asked += bytes;
    given += allocated_bytes(bytes);
  }
  TensorBytes& operator+=(const TensorBytes& other) {
    asked += other.asked;
    given += other.given;
    return *this;
  }
  TensorBytes times(int64_t n) const { return {n * asked, n * given}; }
};

// The activations of one model on a rank, in a pass of `tokens` rows, of which a loss reads
// `targets`.
struct PassMemory {
  TensorBytes block;  // kept by a block until it is differentiated
  // kept by the last block, whose second half computes the targets' rows alone
  TensorBytes last;
  TensorBytes input;    // kept by a block that is recomputed
  TensorBytes scratch;  // needed while a block is differentiated
  TensorBytes scratch_of_last;
  TensorBytes head;  // final norm, head and its gradient, without that of the weight
  // Tensors of a distillation strategy, by when they are freed (ComparedShape); `compared` is
  // scratch.
  TensorBytes of_teacher, of_student, gradients, compared;
};
PassMemory pass_memory(const ModelRole& role, const Ranks& ranks, int64_t number_bytes,
                       const PassShape& pass, at::Device device,
                       const ComparedShape& compared = {});

// Attention of the role's layers, as one of the tensor ranks has them.
ops::AttentionSpec attention_of(const ModelRole& role, int64_t tensor_ranks,
                                ops::CacheDtype cache_dtype = ops::CacheDtype::kFloat32);

}  // namespace temper::checks
