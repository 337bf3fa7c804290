#include "temper/models/device_memory.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>

#include <algorithm>

#include "temper/base/memory.h"
#include "temper/models/device.h"

namespace temper::models {

std::optional<DeviceMemory> memory_of(at::Device device) {
  if (device.is_cpu()) return DeviceMemory{usable_memory_bytes(), usable_memory_bytes()};
  try {
    at::empty({1}, at::TensorOptions(device));  // LibTorch starts a device when it is first used
    const auto [free, all] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
    return DeviceMemory{static_cast<int64_t>(free), static_cast<int64_t>(all)};
  } catch (const c10::Error&) {
    return {};
  }
}

int64_t ranks_on_device(int64_t local_ranks, at::Device device) {
  for (const auto& kind : device_kinds().list()) {
    if (kind.value.type != device.type()) continue;
    const int64_t devices = std::max<int64_t>(kind.value.count(), 1);
    return (local_ranks + devices - 1) / devices;
  }
  return local_ranks;
}

}  // namespace temper::models
