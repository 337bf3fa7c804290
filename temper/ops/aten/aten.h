// The aten backend: compositions of ATen calls on whatever device the tensors are on. No memory is
// read on the host, so that a device's work queue never runs dry, save for sum_of_squares. Its
// members stand in the files of this folder, by the parts of Backend.
#pragma once

#include "temper/ops/backend.h"

namespace temper::ops {

class AtenBackend : public Backend {
 public:
  AtenBackend();
  const char* name() const override { return "aten"; }
  bool batch_invariant() const override { return false; }

#define PRIMITIVE override
#include "temper/ops/primitives-inl.h"
};

}  // namespace temper::ops
