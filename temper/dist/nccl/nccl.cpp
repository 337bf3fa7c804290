// The plugin with NCCL. It links to LibTorch's libraries of CUDA, which are loaded when it is.
#include "temper/dist/nccl/nccl.h"

#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

c10d::Backend* temper_make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                int64_t longest_wait_milliseconds) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(longest_wait_milliseconds);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options).release();
}
