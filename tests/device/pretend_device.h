// A device for tests on machines without one: LibTorch's PrivateUse1, registered as "pretend".
// Its memory cannot be read or written by the host: an access ends the process with a backtrace.
// Operators copy their arguments to the host, run the processor's kernel, and copy the results
// back, so that they compute what the aten backend computes on the processor, to the bit.
//
// With TEMPER_PRETEND_FLASH in the environment it has flash attention (tests/ops/flash_kernels.h).
//
// Linking pretend_device.cpp registers it, also as the device `pretend` of models::device_kinds().
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace pretend {

// Since the program began. What operators copy for themselves does not count.
struct Counts {
  int64_t to_host = 0, to_device = 0;  // copies
  int64_t bytes_to_host = 0, bytes_to_device = 0;
  int64_t scalars = 0;     // numbers read by item()
  int64_t live_bytes = 0;  // device memory in use
  int64_t peak_bytes = 0;  // the most that was, since reset_peak()
};
Counts counts();
void reset_peak();

// Memory beyond it is refused with c10::OutOfMemoryError. TEMPER_PRETEND_BYTES sets it from the
// beginning.
void limit_memory(int64_t bytes);

// Operators that ran, by their name in ATen ("mm.out"), and how often. The device itself has
// allocation, copies and views; a real one must have these, too.
std::map<std::string, int64_t> operators();

}  // namespace pretend
