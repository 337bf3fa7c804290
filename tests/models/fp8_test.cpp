// FP8 with scales of blocks, rows and matrices, of any family.
#include "tests/models/checkpoint_golden.h"

using namespace temper;

namespace {

const std::string kFp8Layer = "model.layers.0.self_attn.";

}  // namespace

TEST_CASE("fp8: values are those that transformers dequantizes, kept as codes and not") {
  const GoldenMatrices matrices = golden_matrices("fp8");
  CHECK(matrices.all == 7);
  CHECK(matrices.equal == matrices.all);
  CHECK(kept_matrices("fp8") == 7);
  CHECK(golden_difference("fp8", {}) < 2e-5);
  CHECK(golden_difference("fp8", {.file = true}) < 2e-5);
}

TEST_CASE("fp8: damaged scales and codes are refused") {
  DamagedModel model("fp8");
  const std::string k = kFp8Layer + "k_proj.weight";
  model.refused<ConfigError>({"`weight_block_size`"},
                             [&](TensorMap&, Json& q) { q["weight_block_size"] = {0, 32}; });
  model.refused<DataError>({"down_proj.weight_scale_inv", "blocks [48, 48]"},
                           [&](TensorMap&, Json& q) { q["weight_block_size"] = {48, 48}; });
  model.refused<DataError>({k + "_scale", "[3, 1]"}, [&](TensorMap& tensors, Json&) {
    put(tensors, k + "_scale", at::ones({3, 1}));
  });
  model.refused<DataError>({k + "_scale", "not finite"}, [&](TensorMap& tensors, Json&) {
    put(tensors, k + "_scale", at::full({32, 1}, INFINITY));
  });
  model.refused<DataError>({k + "_scale", "U8"}, [&](TensorMap& tensors, Json&) {
    put(tensors, k + "_scale", at::zeros({32, 1}, at::kByte));
  });
  model.refused<DataError>({k, "NaN"}, [&](TensorMap& tensors, Json&) {
    put(tensors, k, at::full({32, 64}, std::nan("")).to(at::kFloat8_e4m3fn));
  });
}
