// Weights in FP8 (E4M3) whose blocks of rows and columns have a scale each, as DeepSeek-V3's files
// have them (arXiv 2412.19437, section 3.3).
#pragma once

#include "temper/io/safetensors.h"
#include "temper/models/files/hf_config.h"

namespace temper::models {

// "NAME" [out, in] in FP8 with "NAME_scale_inv" [blocks of out, blocks of in] becomes the float32
// values code * scale, made when they are read. The size of blocks is quantization_config's
// weight_block_size. What does not fit together stays, so that an error names it. Throws
// ConfigError.
void dequantize_fp8(TensorMap& tensors, const HfConfig& config);

}  // namespace temper::models
