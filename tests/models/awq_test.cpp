// Matrices that AWQ's version gemm packed.
#include "tests/models/checkpoint_golden.h"

using namespace temper;

namespace {

const std::string kAwqQueries = "model.layers.0.self_attn.q_proj";

}  // namespace

TEST_CASE("awq: values are those that its tools read, kept as codes and not") {
  const GoldenMatrices matrices = golden_matrices("awq");
  CHECK(matrices.all == 6);
  CHECK(matrices.equal == matrices.all);
  CHECK(kept_matrices("awq") == 6);
  CHECK(golden_difference("awq", {}) < 2e-5);
  CHECK(golden_difference("awq", {.file = true}) < 2e-5);
}

TEST_CASE("awq: other versions and damaged tensors are refused by name") {
  DamagedModel model("awq");
  for (const std::string version : {"gemv", "GEMV_fast", "marlin", "exllama", "llm-awq"})
    model.refused<ConfigError>({"AWQ in the version"},
                               [&](TensorMap&, Json& q) { q["version"] = version; });
  model.refused<ConfigError>({"bits: 8"}, [&](TensorMap&, Json& q) { q["bits"] = 8; });
  model.refused<ConfigError>({"`group_size`"}, [&](TensorMap&, Json& q) { q["group_size"] = "x"; });
  model.refused<DataError>({"down_proj.qweight", "groups of 40"},
                           [&](TensorMap&, Json& q) { q["group_size"] = 40; });
  model.refused<DataError>({kAwqQueries + ".qzeros", "missing"}, [&](TensorMap& tensors, Json&) {
    tensors.erase(kAwqQueries + ".qzeros");
  });
  model.refused<DataError>({kAwqQueries + ".qzeros", "[2, 8]"}, [&](TensorMap& tensors, Json&) {
    put(tensors, kAwqQueries + ".qzeros", at::zeros({8, 2}, at::kInt));
  });
  model.refused<DataError>({kAwqQueries + ".scales", "[2, 64]"}, [&](TensorMap& tensors, Json&) {
    put(tensors, kAwqQueries + ".scales", at::ones({64, 2}));
  });
  model.refused<DataError>({kAwqQueries + ".scales", "not finite"}, [&](TensorMap& tensors, Json&) {
    put(tensors, kAwqQueries + ".scales", at::full({2, 64}, 3e38));
  });
}
