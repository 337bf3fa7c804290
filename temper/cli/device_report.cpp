#include "temper/cli/device_report.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/models/device.h"
#include "temper/models/device_memory.h"

namespace temper::cli {
namespace {

constexpr int64_t kSide = 4096;                     // of the matrices of the measured product
constexpr int64_t kReadNumbers = int64_t{1} << 26;  // float32

// The shortest of a few times, the first of which loads the kernel. `work` gives a tensor whose one
// number is read, which waits for the device.
double shortest_seconds(const std::function<at::Tensor()>& work) {
  double best = 1e300;
  for (int i = 0; i < 4; ++i) {
    const double start = steady_seconds();
    work().item<double>();
    best = std::min(best, steady_seconds() - start);
  }
  return best;
}

std::string product_speed(at::Device device, at::ScalarType type) {
  const at::Tensor a = at::ones({kSide, kSide}, at::TensorOptions(device).dtype(type));
  const double side = static_cast<double>(kSide),
               seconds = shortest_seconds([&] { return at::mm(a, a)[0][0].to(at::kDouble); });
  return str(static_cast<int64_t>(2 * side * side * side / seconds / 1e9));
}

int64_t bandwidth(at::Device device) {
  const at::Tensor x = at::ones({kReadNumbers}, at::TensorOptions(device).dtype(at::kFloat));
  const double seconds = shortest_seconds([&] { return x.sum().to(at::kDouble); });
  return static_cast<int64_t>(4.0 * static_cast<double>(kReadNumbers) / seconds / 1e9);
}

// Empty: the device's allocator does not say.
std::string memory(at::Device device) {
  const auto known = models::memory_of(device);
  if (!known) return {};
  return str(known->free / 1'000'000, " of ", known->all / 1'000'000, " MB free, ");
}

void print_device(std::ostream& out, at::Device device) {
  const at::NoGradGuard no_grad;
  out << "gpu          " << device.str() << ": " << memory(device) << "products "
      << product_speed(device, at::kFloat) << " GFLOP/s in float32, "
      << product_speed(device, at::kBFloat16) << " in bfloat16 (" << kSide << " x " << kSide
      << " x " << kSide << "), reading " << bandwidth(device) << " GB/s" << std::endl;
}

}  // namespace

void print_devices(std::ostream& out) {
  for (const auto& kind : models::device_kinds().list()) {
    if (kind.value.type == at::kCPU) continue;
    int64_t count = 0;
    try {
      count = kind.value.count();
    } catch (const ConfigError& e) {
      out << "gpu          none: " << e.what() << std::endl;
    }
    for (int64_t i = 0; i < count; ++i)
      print_device(out, {kind.value.type, static_cast<at::DeviceIndex>(i)});
  }
}

}  // namespace temper::cli
