// Matrices that GPTQModel packed.
#include "temper/models/files/stream.h"
#include "tests/models/checkpoint_golden.h"

using namespace temper;

namespace {

constexpr double kGptqTolerance = 2e-5;
const std::string kQueries = "model.layers.0.self_attn.q_proj";

}  // namespace

TEST_CASE("gptq: values are those that GPTQModel reads, kept as codes and not") {
  for (const char* name : {"gptq", "gptq_dynamic", "gptq_moe", "gptq_phi3"}) {
    CAPTURE(name);
    const GoldenMatrices matrices = golden_matrices(name);
    CHECK(matrices.all >= 4);
    CHECK(matrices.equal == matrices.all);
    CHECK(golden_difference(name, {}) < kGptqTolerance);
    CHECK(golden_difference(name, {.file = true}) < kGptqTolerance);
  }
}

TEST_CASE("gptq: heads and joined experts are kept, too") {
  CHECK(kept_matrices("gptq") == 8);           // seven of a block and the head
  CHECK(kept_matrices("gptq_dynamic") == 6);   // one of the block is not quantized
  CHECK(kept_matrices("gptq_moe") == 4 + 10);  // gate and up projections of five experts are one
  CHECK(kept_matrices("gptq_phi3") == 4);
}

TEST_CASE("gptq: blocks that are read when they run have the bits of loaded ones") {
  const at::NoGradGuard no_grad;
  const Sequences sequences =
      read_json_file(golden_model("gptq_moe") + "/expected.json")["sequences"].get<Sequences>();
  for (const bool file : {false, true}) {
    const auto whole = models::load_model(golden_model("gptq_moe"), {.file = file}, false);
    const auto streamed = models::stream_model(golden_model("gptq_moe"), "", {.file = file});
    CHECK(at::equal(log_probabilities(*whole, sequences),
                    log_probabilities(*streamed.model, sequences)));
  }
}

TEST_CASE("gptq: what is not read is named") {
  DamagedModel model("gptq");
  const auto config = [&](const std::string& text, const std::string& key, const Json& value) {
    model.refused<ConfigError>({text}, [&](TensorMap&, Json& q) { q[key] = value; });
  };
  config("`marlin`", "checkpoint_format", "marlin");
  config("`gptq_p`", "checkpoint_format", "gptq_p");
  config("the format `bitblas`", "format", "bitblas");
  config("is_marlin_format", "is_marlin_format", true);
  config("pack_dtype `int16`", "pack_dtype", "int16");
  config("bits: 5", "bits", 5);
  config("bits: \"four\"", "bits", "four");
  config("`group_size`", "group_size", -7);
  config("`group_size`", "group_size", 1e300);
  config("auto-round", "quant_method", "auto-round");
  model.refused<ConfigError>({kQueries + ".g_idx", "dynamic"}, [&](TensorMap& tensors, Json& q) {
    q["dynamic"] = {{"+:.*", {{"bits", 8}}}};
    tensors.erase(kQueries + ".g_idx");
  });
  model.refused<ConfigError>({"qweight", "quantization_config"},
                             [&](TensorMap&, Json&) { model.config.erase("quantization_config"); });
}

TEST_CASE("gptq: damaged tensors are refused") {
  DamagedModel model("gptq");
  for (const std::string part : {".qzeros", ".scales"})
    model.refused<DataError>({kQueries + part, "missing"},
                             [&](TensorMap& tensors, Json&) { tensors.erase(kQueries + part); });
  model.refused<DataError>({kQueries + ".qweight", "I64"}, [&](TensorMap& tensors, Json&) {
    put(tensors, kQueries + ".qweight", tensor_of(tensors, kQueries + ".qweight", at::kLong));
  });
  model.refused<DataError>({kQueries + ".qweight", "8 rows"}, [&](TensorMap& tensors, Json& q) {
    q["bits"] = 4;
    put(tensors, kQueries + ".qweight",
        tensor_of(tensors, kQueries + ".qweight", at::kInt).slice(0, 0, 7));
  });
  model.refused<DataError>({kQueries + ".qzeros", "[2, 8]"}, [&](TensorMap& tensors, Json&) {
    put(tensors, kQueries + ".qzeros", at::zeros({2, 7}, at::kInt));
  });
  model.refused<DataError>({kQueries + ".scales", "[groups, 64]"}, [&](TensorMap& tensors, Json&) {
    put(tensors, kQueries + ".scales", at::ones({2, 63}));
  });
  model.refused<DataError>({kQueries + ".scales", "not finite"}, [&](TensorMap& tensors, Json&) {
    at::Tensor scales = tensor_of(tensors, kQueries + ".scales", at::kHalf);
    scales[1][5] = std::nan("");
    put(tensors, kQueries + ".scales", scales);
  });
  for (const int group : {2, -1})
    model.refused<DataError>({kQueries + ".g_idx", "from 0 to 1"}, [&](TensorMap& tensors, Json&) {
      at::Tensor g_idx = tensor_of(tensors, kQueries + ".g_idx", at::kInt);
      g_idx[63] = group;
      put(tensors, kQueries + ".g_idx", g_idx);
    });
  model.refused<DataError>({kQueries + ".scales", "groups of 64"},
                           [&](TensorMap& tensors, Json& q) {
                             q["group_size"] = 64;
                             tensors.erase(kQueries + ".g_idx");
                           });
}
