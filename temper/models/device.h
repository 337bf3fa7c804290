// Which device a program computes on, with which backend of temper/ops, and its memory.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "temper/base/registry.h"

namespace temper::ops {
class Backend;
}

namespace temper::models {

// A kind of device that model.device names. The processor and CUDA are there; a program may add
// another one that its LibTorch has.
struct DeviceKind {
  at::DeviceType type;
  // How many there are, after loading what they need. Throws ConfigError that says what is missing.
  int64_t (*count)();
};
Registry<DeviceKind>& device_kinds();

// What a config or flags say, and the names of these keys for messages.
struct DeviceChoice {
  std::string device = "auto";   // auto, or KIND or KIND:N of device_kinds(), as in cuda:1
  std::string backend = "auto";  // auto | native | aten
  std::string device_key = "model.device", backend_key = "model.backend";
};

// `auto` is a CUDA device where there is one, else the processor. Of a kind without N it is the
// first device; ranks of one machine (LOCAL_RANK) take them in turn. Throws ConfigError for a name
// that is none, and a device that this program or machine does not have.
at::Device device_for(const DeviceChoice& choice);

// The backend that computes on the chosen device: `auto` is what TEMPER_BACKEND names, else native
// on the processor; aten elsewhere. Throws ConfigError as device_for, and for native off the
// processor.
const ops::Backend& backend_for(const DeviceChoice& choice);

// Whether it is the processor. True for a choice that device_for() refuses, which use_device() will
// report; so below.
bool is_cpu(const DeviceChoice& choice);
// Whether what is sampled there is what training computes there, to the bit
// (ops::Backend::batch_invariant).
bool is_exact(const DeviceChoice& choice);

// Makes them the device of models that this process loads from here on, and the backend of its
// tensors on the processor. Before any thread reads them.
void use_device(const DeviceChoice& choice);
// The processor until use_device() says otherwise.
at::Device chosen_device();

struct DeviceMemory {
  int64_t free = 0, all = 0;  // bytes
};
// Of the processor what this process may use. None where the device's allocator does not say.
std::optional<DeviceMemory> memory_of(at::Device device);

// How many of the ranks of one machine compute on the device of one of them, at most: they take its
// devices in turn (device_for).
int64_t ranks_on_device(int64_t local_ranks, at::Device device);

}  // namespace temper::models
