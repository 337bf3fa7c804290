// States of sampled sequences in every layer that carries one (recurrent.h), in numbered slots: a
// slot holds what one sequence carries at one position. Whose a slot is, is the caller's to know.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "temper/ops/layers/recurrent.h"

namespace temper::ops {

// What one sequence of a pass reads and writes.
struct StateSlots {
  int64_t from = -1;                            // before its first row; -1: zeros
  std::vector<std::pair<int64_t, int64_t>> to;  // (row of the batch, slot), rows ascending
};

class StateStore {
 public:
  // Numbers (float32) of each operation's state by layer; a layer without a state has none.
  StateStore(std::vector<std::vector<int64_t>> sizes, at::Device device);
  // Of one slot in all layers; 0: no layer has a state.
  int64_t slot_bytes() const;
  // Slot `to` becomes a copy of slot `from`.
  void copy(int64_t from, int64_t to);
  // Gives all memory back. A slot takes memory when it is first written.
  void clear() { slots_.clear(); }
  // The states of the layer's `part`-th operation, for the sequences of a pass.
  CarriedStates carried(const std::vector<StateSlots>& sequences, int64_t layer,
                        int64_t part) const;

 private:
  at::Tensor slot(int64_t index) const;

  std::vector<std::vector<std::pair<int64_t, int64_t>>> places_;  // (begin, count), by layer
  int64_t numbers_ = 0;                                           // of a slot
  at::Device device_;
  mutable std::vector<at::Tensor> slots_;  // [numbers_] each; undefined until it is used
};

}  // namespace temper::ops
