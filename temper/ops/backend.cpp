#include "temper/ops/backend.h"

#include <ATen/ATen.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "temper/base/error.h"
#include "temper/ops/sizes.h"

namespace temper::ops {
namespace {

// Null until choose_cpu_backend().
std::atomic<const Backend*> chosen_backend = nullptr;

at::Tensor on_device(const int64_t* numbers, size_t count, const at::Tensor& like) {
  at::Tensor x = at::empty({static_cast<int64_t>(count)}, at::kLong);
  if (count > 0) std::memcpy(x.mutable_data_ptr<int64_t>(), numbers, count * sizeof(int64_t));
  return like.is_cpu() ? x : x.to(like.device());
}

}  // namespace

void Backend::multiply_each(const at::Tensor& x, const std::vector<LinearOperand>& layers,
                            std::vector<at::Tensor>& y) const {
  for (size_t i = 0; i < layers.size(); ++i) multiply(x, layers[i].weight, y[i], layers[i].bias);
}

void Backend::grouped_multiply(const at::Tensor& x, const std::vector<int64_t>& offsets,
                               const std::vector<LinearOperand>& layer, at::Tensor& y) const {
  for (size_t g = 0; g < layer.size(); ++g) {
    const int64_t rows = offsets[g + 1] - offsets[g];
    at::Tensor part = y.narrow(0, offsets[g], rows);
    multiply(x.narrow(0, offsets[g], rows), layer[g].weight, part, layer[g].bias);
  }
}

void Backend::grouped_multiply_transposed(const at::Tensor& dy, const std::vector<int64_t>& offsets,
                                          const std::vector<LinearOperand>& layer, at::Tensor& dx,
                                          bool accumulate) const {
  for (size_t g = 0; g < layer.size(); ++g) {
    const int64_t rows = offsets[g + 1] - offsets[g];
    at::Tensor part = dx.narrow(0, offsets[g], rows);
    multiply_transposed(dy.narrow(0, offsets[g], rows), layer[g].weight, part, accumulate, {});
  }
}

void Backend::grouped_weight_gradients(const std::vector<LinearOperand>& layer,
                                       const at::Tensor& dy, const at::Tensor& x,
                                       const std::vector<int64_t>& offsets,
                                       std::vector<at::Tensor>& dw) const {
  for (size_t g = 0; g < layer.size(); ++g) {
    const int64_t rows = offsets[g + 1] - offsets[g];
    if (dw[g].defined())
      weight_gradient(layer[g].weight, dy.narrow(0, offsets[g], rows),
                      x.narrow(0, offsets[g], rows), dw[g], false, {});
  }
}

const Backend& backend_named(std::string_view name) {
  if (name == "native") return native_backend();
  check<ConfigError>(name == "aten", "backend \"", std::string(name),
                     "\": expected auto, native or aten");
  return aten_backend();
}

const Backend& default_cpu_backend() {
  const char* name = std::getenv("TEMPER_BACKEND");
  if (!name || !*name || std::strcmp(name, "auto") == 0) return native_backend();
  try {
    return backend_named(name);
  } catch (const ConfigError& error) {
    throw ConfigError(str("the environment variable TEMPER_BACKEND: ", error.what()));
  }
}

const Backend& cpu_backend() {
  if (const Backend* chosen = chosen_backend.load(std::memory_order_relaxed)) return *chosen;
  // The environment variable counts, and its errors are raised, only where nothing was chosen.
  static const Backend& by_default = default_cpu_backend();
  return by_default;
}
void choose_cpu_backend(const Backend& backend) { chosen_backend.store(&backend); }

const Backend& backend_of(const at::Tensor& x) {
  return x.is_cpu() ? cpu_backend() : backend_of(x.device());
}
const Backend& backend_of(at::Device device) {
  if (device.is_cpu()) return cpu_backend();
  const Backend* const sizes = device.is_meta() ? SizesOf::current() : nullptr;
  return sizes ? *sizes : aten_backend();
}

CarriedStates KvPass::states(int64_t layer, int64_t part) const {
  check(store_ != nullptr, "the sampled sequences carry no states");
  return store_->carried(slots_, layer, part);
}
void KvPass::carry(const StateStore& store, std::vector<StateSlots> slots) {
  store_ = &store;
  slots_ = std::move(slots);
}

CachePage cache_page(std::span<const AttentionSpec> layers, at::Device device) {
  return backend_of(device).cache_page(layers, device);
}
int64_t page_tokens() {
  const AttentionSpec any{.num_heads = 1, .num_kv_heads = 1, .head_dim = 8};
  return cache_page({&any, 1}, at::kCPU).tokens;
}

at::Tensor indices(const std::vector<int64_t>& numbers, const at::Tensor& like) {
  return on_device(numbers.data(), numbers.size(), like);
}
at::Tensor indices(const std::vector<uint64_t>& bits, const at::Tensor& like) {
  return on_device(reinterpret_cast<const int64_t*>(bits.data()), bits.size(), like);
}

}  // namespace temper::ops
