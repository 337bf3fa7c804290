#include "temper/models/init.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"
#include "temper/base/memory.h"
#include "temper/base/random.h"
#include "temper/models/files/stream.h"
#include "temper/models/files/tensors.h"

namespace temper::models {
namespace {

uint64_t hash_name(const std::string& name) {  // FNV-1a
  uint64_t hash = 1469598103934665603ull;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return hash;
}

void refuse_beyond_memory(CausalLM& model, const HfConfig& config) {
  double bytes = 0;
  model.each_parameter([&](const std::string&, nn::Parameter& parameter) {
    double count = sizeof(float);
    for (const int64_t extent : parameter.shape()) count *= static_cast<double>(extent);
    bytes += count;
  });
  const double usable = static_cast<double>(usable_memory_bytes());
  check<ConfigError>(bytes <= usable, config.where(), ": a model of these sizes takes ",
                     static_cast<int64_t>(bytes / 1e9), " GB, and this machine has ",
                     static_cast<int64_t>(usable / 1e9));
}

}  // namespace

at::Tensor initial_value(const nn::Parameter& parameter, const std::string& name, uint64_t seed) {
  const nn::Init& init = parameter.init();
  at::Tensor value = at::empty(parameter.shape(), at::kFloat);
  float* data = value.mutable_data_ptr<float>();
  const int64_t count = value.numel();
  if (init.kind == nn::Init::Kind::kLogUniform) {
    const RandomStream stream(seed, RandomPurpose::kInit, hash_name(name));
    for (int64_t i = 0; i < count; ++i)
      data[i] = exact::log_float(0.01f + 15.99f * stream.uniform(static_cast<uint64_t>(i)));
    return value;
  }
  if (init.kind != nn::Init::Kind::kNormal) {
    std::fill(data, data + count, init.kind == nn::Init::Kind::kOnes ? 1.0f : 0.0f);
    return value;
  }
  const RandomStream stream(seed, RandomPurpose::kInit, hash_name(name));
  const float init_std = static_cast<float>(init.init_std);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) data[i] = init_std * stream.normal(static_cast<uint64_t>(i));
  return value;
}

namespace {

// The padding token's row starts as zeros, as in an embedding with a padding index.
at::Tensor first_value(CausalLM& model, const nn::Parameter& parameter, const std::string& name,
                       const HfConfig& config, uint64_t seed) {
  at::Tensor value = initial_value(parameter, name, seed);
  const int64_t padding =
      config.has("pad_token_id") ? static_cast<int64_t>(config.number("pad_token_id", -1)) : -1;
  if (&parameter == &model.body().embedding().weight && padding >= 0 && padding < value.size(0))
    value[padding].zero_();
  return value;
}

}  // namespace

std::unique_ptr<CausalLM> init_model(const HfConfig& config, uint64_t seed) {
  std::unique_ptr<CausalLM> model = make_model(config);
  refuse_beyond_memory(*model, config);
  model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    parameter.set_value(first_value(*model, parameter, name, config, seed));
  });
  return model;
}

NamedTensors init_tensors(CausalLM& model, const HfConfig& config, uint64_t seed,
                          at::ScalarType dtype) {
  NamedTensors tensors;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    tensors.emplace_back(
        name,
        view_of(parameter.shape(), dtype, [name, &model, &config, seed, dtype, p = &parameter] {
          return first_value(model, *p, name, config, seed).to(dtype);
        }));
  });
  restore_names(model.body(), tensors);
  return tensors;
}

}  // namespace temper::models
