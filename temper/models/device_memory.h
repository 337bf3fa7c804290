// The memory of devices, and who shares it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace temper::models {

struct DeviceMemory {
  int64_t free = 0, all = 0;  // bytes
};
// Of the processor what this process may use. None where the device's allocator does not say.
std::optional<DeviceMemory> memory_of(at::Device device);

// How many of the ranks of one machine compute on the device of one of them, at most: they take its
// devices in turn (device_for).
int64_t ranks_on_device(int64_t local_ranks, at::Device device);

}  // namespace temper::models
