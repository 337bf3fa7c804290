// What a forward and a backward pass hold, tensor by tensor: the sizes follow from what the
// functions of temper/ops keep for their backward pass (temper/ops/linear.h, attention.cpp,
// token_logp.cpp).
#pragma once

#include <cstdint>

#include "temper/plan/run_shape.h"

namespace temper::plan {

// jemalloc's size classes: four to each doubling. A tensor's memory is used again for others, so
// that in time all of it is resident.
int64_t allocated_bytes(int64_t asked);

inline constexpr int64_t kFloat = 4;  // bytes

// Whether the role's adapters change the product by this weight.
bool is_adapted(const ModelRole& role, const ShapedTensor& t);

// Bytes of tensors, and of what they are given.
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

// Of one model of a rank, in a pass of `tokens` rows, of which `targets` are read at the end.
struct PassMemory {
  TensorBytes block;    // kept by a block, until it is differentiated
  TensorBytes last;     // by the last one, whose second half computes the rows that are read alone
  TensorBytes input;    // by a block that is computed again
  TensorBytes scratch;  // while a block is differentiated
  TensorBytes scratch_of_last;
  TensorBytes head;  // of the final norm, the head and its gradient; without the weight's
};
PassMemory pass_memory(const ModelRole& role, const Ranks& ranks, int64_t number_bytes,
                       int64_t tokens, int64_t targets);

}  // namespace temper::plan
