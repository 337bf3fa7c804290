// Matrices that compressed-tensors wrote.
#include "tests/models/checkpoint_golden.h"

using namespace temper;

namespace {

const std::string kLayer = "model.layers.0.self_attn.";

Json& first_group(Json& quantization) { return quantization["config_groups"]["group_0"]; }

}  // namespace

TEST_CASE("compressed-tensors: values are those that it decompresses, kept as codes and not") {
  for (const char* name : {"compressed_pack", "compressed_int", "compressed_float"}) {
    CAPTURE(name);
    const GoldenMatrices matrices = golden_matrices(name);
    CHECK(matrices.all >= 6);
    CHECK(matrices.equal == matrices.all);
    CHECK(kept_matrices(name) == matrices.all);
    CHECK(golden_difference(name, {}) < 2e-5);
    CHECK(golden_difference(name, {.file = true}) < 2e-5);
  }
}

TEST_CASE("compressed-tensors: what is not read is named") {
  DamagedModel model("compressed_pack");
  const auto config = [&](const std::string& text, const std::function<void(Json & q)>& change) {
    model.refused<ConfigError>({"compressed-tensors with", text},
                               [&](TensorMap&, Json& q) { change(q); });
  };
  config("`nvfp4-pack-quantized`", [](Json& q) { q["format"] = "nvfp4-pack-quantized"; });
  config("`dense`", [](Json& q) { q["format"] = "dense"; });
  config("`mxfp4-pack-quantized`",
         [](Json& q) { first_group(q)["format"] = "mxfp4-pack-quantized"; });
  config("sparse-24-bitmask",
         [](Json& q) { q["sparsity_config"] = {{"format", "sparse-24-bitmask"}}; });
  config("transform_config",
         [](Json& q) { q["transform_config"] = {{"config_groups", {{"a", 1}}}}; });
  config("num_bits 6", [](Json& q) { first_group(q)["weights"]["num_bits"] = 6; });
  config("num_bits 4, type float", [](Json& q) { first_group(q)["weights"]["type"] = "float"; });
  config("`tensor_group`", [](Json& q) { first_group(q)["weights"]["strategy"] = "tensor_group"; });
}

TEST_CASE("compressed-tensors: damaged tensors are refused") {
  DamagedModel model("compressed_pack");
  const std::string q = kLayer + "q_proj.weight";
  for (const std::string part : {"_scale", "_shape"})
    model.refused<DataError>({q + part, "missing"},
                             [&](TensorMap& tensors, Json&) { tensors.erase(q + part); });
  model.refused<DataError>({"weight_scale", "inputs by the `group_size`"},
                           [](TensorMap&, Json& quantization) {
                             for (Json& group : quantization["config_groups"])
                               if (group["weights"].contains("group_size"))
                                 group["weights"]["group_size"] = 16;
                           });
  DamagedModel("compressed_int")
      .refused<DataError>({"weight_scale", "inputs by the `group_size`"},
                          [](TensorMap&, Json& quantization) {
                            for (Json& group : quantization["config_groups"])
                              group["weights"]["group_size"] = 16;
                          });
  model.refused<DataError>({q + "_shape", "from 1"}, [&](TensorMap& tensors, Json&) {
    put(tensors, q + "_shape", at::tensor({64, -64}, at::kLong));
  });
  model.refused<DataError>({q + "_packed", "[1073741824, 64]"}, [&](TensorMap& tensors, Json&) {
    put(tensors, q + "_shape", at::tensor({int64_t{1} << 30, int64_t{64}}, at::kLong));
  });
  model.refused<DataError>({q + "_zero_point", "[8, 2]"}, [&](TensorMap& tensors, Json&) {
    put(tensors, q + "_zero_point", at::zeros({2, 8}, at::kInt));
  });
  model.refused<DataError>({q + "_scale"}, [&](TensorMap& tensors, Json&) {
    put(tensors, q + "_scale", at::ones({64, 5}));
  });
  const std::string up = "model.layers.0.mlp.up_proj.weight";
  model.refused<DataError>({up + "_g_idx", "to 1"}, [&](TensorMap& tensors, Json&) {
    put(tensors, up + "_g_idx", at::full({64}, 2, at::kInt));
  });
  DamagedModel floats("compressed_float");
  model.refused<DataError>({q, "F32", "I8 or F8_E4M3"}, [&](TensorMap& tensors, Json&) {
    tensors.erase(q + "_packed");
    tensors[q] = models::to_view(at::zeros({64, 64}));
  });
  floats.refused<DataError>({q, "NaN"}, [&](TensorMap& tensors, Json&) {
    put(tensors, q, at::full({64, 64}, std::nan("")).to(at::kFloat8_e4m3fn));
  });
  floats.refused<DataError>({kLayer + "v_proj.weight_scale", "[24, 40]"},
                            [&](TensorMap& tensors, Json&) {
                              put(tensors, kLayer + "v_proj.weight_scale", at::ones({3, 3}));
                            });
}
