// The memory that a pass takes, without computing it: on LibTorch's device `meta` tensors have
// sizes but no memory, and layers that run on them show what they allocate.
#pragma once

#include <memory>

#include "temper/ops/backend.h"

namespace temper::ops {

// While one lives, this thread's tensors on `meta` have a backend that allocates what the one of
// `device` allocates, and computes nothing. Routers choose all experts equally often.
class SizesOf {
 public:
  explicit SizesOf(at::Device device);
  ~SizesOf();
  SizesOf(const SizesOf&) = delete;
  SizesOf& operator=(const SizesOf&) = delete;
  static const Backend* current();  // null: none lives

 private:
  std::unique_ptr<const Backend> own_;
  const Backend* const before_;
};

}  // namespace temper::ops
