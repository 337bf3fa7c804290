// Weights in FP8 (E4M3) whose blocks of rows and columns have a scale each, as DeepSeek-V3's files
// have them (arXiv 2412.19437, section 3.3): "NAME" [out, in] in FP8 with "NAME_scale_inv" [blocks
// of out, blocks of in] stands for the float32 values code * scale. The size of blocks is
// quantization_config's weight_block_size.
#include <ATen/ATen.h>

#include <array>
#include <nlohmann/json.hpp>

#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/tensors.h"

namespace temper::models {
namespace {

using Fp8Block = std::array<int64_t, 2>;  // rows and columns

Fp8Block fp8_block(const HfConfig& config) {
  Fp8Block block{128, 128};
  const auto section = config.json().find("quantization_config");
  if (section == config.json().end() || !section->is_object()) return block;
  const auto sizes = section->find("weight_block_size");
  if (sizes == section->end() || sizes->is_null()) return block;
  const bool two = sizes->is_array() && sizes->size() == 2;
  for (size_t i = 0; i < 2; ++i) {
    const bool number = two && (*sizes)[i].is_number_integer();
    const int64_t size = number ? (*sizes)[i].get<int64_t>() : 0;
    if (size < 1 || size > 65536)
      config.fail("quantization_config", "`weight_block_size`: expected two positive integers");
    block[i] = size;
  }
  return block;
}

at::Tensor fp8_values(const TensorView& codes, const TensorView& scales, const Fp8Block& block) {
  const TensorView mapped = made_view(codes);
  const at::Tensor code = to_tensor(mapped, at::kFloat);
  at::Tensor scale = to_tensor(made_view(scales), at::kFloat);
  for (int64_t d = 0; d < 2; ++d)
    scale = scale.repeat_interleave(block[static_cast<size_t>(d)], d).narrow(d, 0, code.size(d));
  give_back_pages(mapped);
  return code * scale;
}

void open_fp8(TensorMap& tensors, const HfConfig& config, const std::string&) {
  constexpr std::string_view kScales = "_scale_inv";
  const Fp8Block block = fp8_block(config);
  const auto blocks = [&](const TensorView& codes, size_t d) {
    return (codes.shape[d] + block[d] - 1) / block[d];
  };
  for (auto it = tensors.begin(); it != tensors.end();) {
    const auto scales = it++;
    if (!scales->first.ends_with(kScales)) continue;
    const auto codes = tensors.find(scales->first.substr(0, scales->first.size() - kScales.size()));
    if (codes == tensors.end() || codes->second.dtype != DType::kFloat8E4M3 ||
        codes->second.shape.size() != 2 ||
        scales->second.shape != std::vector{blocks(codes->second, 0), blocks(codes->second, 1)})
      continue;
    codes->second = view_of(codes->second.shape, at::kFloat,
                            [codes = codes->second, scales = scales->second, block] {
                              return fp8_values(codes, scales, block);
                            });
    tensors.erase(scales);
  }
}

const Registered<CheckpointFormat> kFp8(&checkpoint_formats,
                                        {"fp8",
                                         {.open = &open_fp8, .of_families = true},
                                         "FP8 with scales of blocks"});

}  // namespace
}  // namespace temper::models
