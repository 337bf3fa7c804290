// 4-bit weights as bitsandbytes writes them into safetensors: of a linear layer's `weight` the
// codes, two to a byte, and beside them `weight.absmax` (with double quantization 8-bit codes, and
// `weight.nested_absmax` and `weight.nested_quant_map`), `weight.quant_map`, and
// `weight.quant_state.bitsandbytes__nf4`, a JSON text of shape, block size and offset.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/io/safetensors.h"
#include "temper/ops/weight.h"

namespace temper::models {

struct Nf4Tensor {
  std::vector<int64_t> shape;  // [out, in]
  std::vector<uint8_t> codes;  // one a byte, row-major
  std::vector<float> absmax;   // of each block of 64 values
  std::shared_ptr<const ops::QuantizedWeight> weight(at::Device device = at::kCPU) const;
};

// Names of the weights that are quantized so.
std::vector<std::string> bitsandbytes_weights(const TensorMap& tensors);
// One of them; it and what stands beside it leave `tensors`. Throws ConfigError for another code
// (fp4) or block size than nf4's 64, and DataError for sizes that disagree; both name `where`.
Nf4Tensor take_bitsandbytes(TensorMap& tensors, const std::string& name, const std::string& where);

// Refuses a config.json whose quantization_config is none that is read, naming its method. Throws
// ConfigError.
void check_quantization(const Json& config, const std::string& where);
// The same by the names of a directory's tensors, where config.json says nothing.
void check_quantization(const TensorMap& tensors, const std::string& where);

}  // namespace temper::models
