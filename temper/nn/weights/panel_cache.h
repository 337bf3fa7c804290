// The packed form of a weight: its blocks in the order in which products read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>

#include "temper/ops/weight.h"

namespace temper::nn {

// Made on first use and kept until the weight changes. Of any thread; two that come first pack
// once.
class PanelCache {
 public:
  // Of the weight after so many updates. Undefined, and then nothing is kept, while gradients are
  // recorded (training packs into scratch), while a TransientPanels lives, and for float64.
  at::Tensor of(const ops::Weight& weight, uint64_t updates);
  void drop();

 private:
  std::mutex mutex_;
  at::Tensor panels_;
  uint64_t updates_ = 0;  // of the weight when they were made
};

// While one lives, this thread's packed forms are not kept, though no gradient is recorded: a
// forward pass that will be run again for its gradient.
class TransientPanels {
 public:
  TransientPanels();
  ~TransientPanels();
  TransientPanels(const TransientPanels&) = delete;
  TransientPanels& operator=(const TransientPanels&) = delete;
};

}  // namespace temper::nn
