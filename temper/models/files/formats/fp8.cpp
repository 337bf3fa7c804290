// Weights in FP8 (E4M3) whose scales stand beside them: "MODULE.weight" [out, in] with
// "MODULE.weight_scale_inv" or "MODULE.weight_scale", one number, one a row, or one a block of rows
// and columns, as DeepSeek-V3's files have them (arXiv 2412.19437, section 3.3), stands for the
// float32 values code * scale. The size of blocks is quantization_config's weight_block_size.
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/files/formats/packed.h"
#include "temper/models/files/formats/scaled.h"
#include "temper/models/files/hf_config.h"

namespace temper::models {
namespace {

BlockShape fp8_block(const HfConfig& config, const Json& section) {
  int64_t block[] = {128, 128};
  const auto sizes = section.find("weight_block_size");
  if (sizes == section.end() || sizes->is_null()) return {block[0], block[1]};
  const bool two = sizes->is_array() && sizes->size() == 2;
  for (size_t i = 0; i < 2; ++i) {
    const bool number = two && (*sizes)[i].is_number_integer();
    const int64_t size = number ? (*sizes)[i].get<int64_t>() : 0;
    if (size < 1 || size > 65536)
      config.fail("quantization_config", "`weight_block_size`: expected two positive integers");
    block[i] = size;
  }
  return {block[0], block[1]};
}

// Scales of weights in other dtypes are another format's.
void open_fp8(TensorMap& tensors, const HfConfig& config, const std::string& directory) {
  const Json none = Json::object();
  const Json* section = quantization_of(config, "fp8");
  if (!section && config.has("quantization_config")) return;
  const BlockShape block = fp8_block(config, section ? *section : none);
  bool any = false;
  for (const std::string scales : {".weight_scale_inv", ".weight_scale"})
    for (const std::string& module : modules_with(tensors, scales)) {
      const auto codes = tensors.find(module + ".weight");
      if (codes == tensors.end() || codes->second.dtype != DType::kFloat8E4M3) continue;
      MatrixParts parts(tensors, module, {".weight", scales.c_str()}, directory);
      tensors[module + ".weight"] = scaled_view(std::move(parts), scales, "", block);
      any = true;
    }
  if (any) drop_activation_scales(tensors);
}

const Registered<CheckpointFormat> kFp8(&checkpoint_formats,
                                        {"fp8",
                                         {.open = &open_fp8},
                                         "FP8 with scales of matrices, rows or blocks"});

}  // namespace
}  // namespace temper::models
