#include "temper/models/device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/ops/backend.h"

namespace temper::models {
namespace {

int64_t one() { return 1; }

// LibTorch's library of CUDA; empty: this LibTorch has none.
std::string cuda_library() {
  Dl_info about{};
  if (::dladdr(reinterpret_cast<const void*>(&at::globalContext), &about) == 0) return {};
  const auto beside = std::filesystem::path(about.dli_fname).replace_filename("libtorch_cuda.so");
  std::error_code none;
  return std::filesystem::exists(beside, none) ? beside.string() : "";
}

// Loads it where nothing has. The reason if it does not load.
std::string load_failure(const std::string& library) {
  if (at::globalContext().hasCUDA()) return {};
  if (::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
  const char* reason = ::dlerror();
  return reason == nullptr ? "unknown reason" : reason;
}

// LibTorch registers CUDA when its library is loaded, which nothing of this program links to: the
// same program runs where there is none. The library is large, so the driver is asked for first.
int64_t count_cuda() {
  static const std::string library = cuda_library();
  check<ConfigError>(!library.empty(), "this build has no CUDA");
  static const bool has_driver = ::dlopen("libcuda.so.1", RTLD_NOW) != nullptr;
  check<ConfigError>(has_driver, "this machine has no NVIDIA driver (libcuda.so.1)");
  // Without CUDA's other libraries, which `make` leaves out, it does not load.
  static const std::string failure = load_failure(library);
  check<ConfigError>(failure.empty(), library, " does not load: ", failure);
  const int64_t devices = at::globalContext().hasCUDA()
                              ? static_cast<int64_t>(at::detail::getCUDAHooks().deviceCount())
                              : 0;
  check<ConfigError>(devices > 0, "no CUDA device is visible");
  return devices;
}

bool has_cuda() {
  try {
    return count_cuda() > 0;
  } catch (const ConfigError&) {
    return false;
  }
}

std::string expected() {
  std::string names = "auto";
  for (const auto& kind : device_kinds().list())
    names += ", " + kind.name + (kind.value.type == at::kCPU ? "" : " or " + kind.name + ":N");
  return names;
}

// KIND and N of KIND:N; none: it is written otherwise.
struct NamedDevice {
  std::string kind;
  std::optional<int64_t> index = {};
};
std::optional<NamedDevice> parse(const std::string& text) {
  const size_t colon = text.find(':');
  NamedDevice device{text.substr(0, colon)};
  if (!device_kinds().contains(device.kind)) return {};
  if (colon == std::string::npos) return device;
  const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
  int64_t index = 0;
  const auto [last, error] = std::from_chars(begin, end, index);
  const bool is_number = begin != end && last == end && *begin != '-';
  if (!is_number || device_kinds().find(device.kind).type == at::kCPU) return {};
  // What is too large is refused as a device that is not there.
  device.index = error == std::errc() ? index : INT64_MAX;
  return device;
}

// Ranks of one machine take its devices in turn.
int64_t own_index(int64_t devices) {
  const char* rank = std::getenv("LOCAL_RANK");
  return rank ? std::max(0, std::atoi(rank)) % std::max<int64_t>(devices, 1) : 0;
}

at::Device& chosen() {
  static at::Device device = at::kCPU;
  return device;
}

}  // namespace

Registry<DeviceKind>& device_kinds() {
  static Registry<DeviceKind> table(
      "device",
      {{"cpu", {at::kCPU, &one}, "the CPU"}, {"cuda", {at::kCUDA, &count_cuda}, "NVIDIA's GPUs"}});
  return table;
}

at::Device device_for(const DeviceChoice& choice) {
  if (choice.device == "auto") {
    if (!has_cuda()) return at::kCPU;
    return {at::kCUDA, static_cast<at::DeviceIndex>(own_index(count_cuda()))};
  }
  const std::optional<NamedDevice> named = parse(choice.device);
  check<ConfigError>(named.has_value(), choice.device_key, ": found ", choice.device, ", expected ",
                     expected());
  const DeviceKind& kind = device_kinds().find(named->kind);
  if (kind.type == at::kCPU) return at::kCPU;
  int64_t count = 0;
  try {
    count = kind.count();
  } catch (const ConfigError& e) {
    throw ConfigError(
        str(choice.device_key, ": found ", choice.device, "; ", e.what(), "; use cpu or auto"));
  }
  const int64_t index = named->index.value_or(own_index(count));
  check<ConfigError>(index < count, choice.device_key, ": found ", choice.device,
                     ", but this machine has ", count, count == 1 ? " device" : " devices",
                     " of this kind, numbered from 0");
  return {kind.type, static_cast<at::DeviceIndex>(index)};
}

const ops::Backend& backend_for(const DeviceChoice& choice) {
  check<ConfigError>(
      choice.backend == "auto" || choice.backend == "native" || choice.backend == "aten",
      choice.backend_key, ": found ", choice.backend, ", expected auto, native or aten");
  if (!device_for(choice).is_cpu()) {
    check<ConfigError>(choice.backend != "native", choice.backend_key, ": found native, which ",
                       "runs on the CPU only; use aten or auto, or ", choice.device_key, " cpu");
    return ops::aten_backend();
  }
  return choice.backend == "auto" ? ops::default_cpu_backend() : ops::backend_named(choice.backend);
}

bool is_cpu(const DeviceChoice& choice) {
  try {
    return device_for(choice).is_cpu();
  } catch (const ConfigError&) {
    return true;
  }
}

bool is_exact(const DeviceChoice& choice) {
  try {
    return backend_for(choice).batch_invariant();
  } catch (const ConfigError&) {
    return true;
  }
}

void use_device(const DeviceChoice& choice) {
  ops::choose_cpu_backend(backend_for(choice));
  chosen() = device_for(choice);
}

at::Device chosen_device() { return chosen(); }

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
