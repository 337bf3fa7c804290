// Matrices in FP4 and int8 that bitsandbytes wrote; NF4 is in storage_test.cpp.
#include "tests/models/checkpoint_golden.h"

using namespace temper;

namespace {

const std::string kBnbQueries = "model.layers.0.self_attn.q_proj";

}  // namespace

TEST_CASE("bitsandbytes: fp4's values are those that it reads, kept as codes and not") {
  const GoldenMatrices matrices = golden_matrices("bnb_fp4");
  CHECK(matrices.all == 7);
  CHECK(matrices.equal == matrices.all);
  CHECK(kept_matrices("bnb_fp4") == 7);
  CHECK(golden_difference("bnb_fp4", {}) < 2e-5);
  CHECK(golden_difference("bnb_fp4", {.file = true}) < 2e-5);
}

TEST_CASE("bitsandbytes: int8's model is the one that it reads") {
  // Its two products are code * SCB and that / 127, these SCB / 127 and code * that.
  CHECK(golden_matrices("bnb_int8").all == 7);
  CHECK(kept_matrices("bnb_int8") == 7);
  CHECK(golden_difference("bnb_int8", {}) < 2e-5);
  CHECK(golden_difference("bnb_int8", {.file = true}) < 2e-5);
}

TEST_CASE("bitsandbytes: damaged fp4 and int8 are refused") {
  DamagedModel fours("bnb_fp4"), bytes("bnb_int8");
  fours.refused<DataError>({kBnbQueries + ".weight.quant_map", "FP4"},
                           [&](TensorMap& tensors, Json&) {
                             put(tensors, kBnbQueries + ".weight.quant_map", at::zeros({16}));
                           });
  fours.refused<DataError>(
      {kBnbQueries + ".weight.absmax", "missing"},
      [&](TensorMap& tensors, Json&) { tensors.erase(kBnbQueries + ".weight.absmax"); });
  bytes.refused<DataError>({kBnbQueries + ".weight", "I8"}, [&](TensorMap& tensors, Json&) {
    put(tensors, kBnbQueries + ".weight", at::zeros({64, 64}));
  });
  bytes.refused<DataError>({kBnbQueries + ".SCB", "[64]"}, [&](TensorMap& tensors, Json&) {
    put(tensors, kBnbQueries + ".SCB", at::ones({63}));
  });
  for (const double wrong : {-1.0, static_cast<double>(NAN)})
    bytes.refused<DataError>({kBnbQueries + ".SCB", "holds"}, [&](TensorMap& tensors, Json&) {
      put(tensors, kBnbQueries + ".SCB", at::full({64}, wrong));
    });
  bytes.refused<ConfigError>({kBnbQueries + ".weight_format"}, [&](TensorMap& tensors, Json&) {
    put(tensors, kBnbQueries + ".weight_format", at::full({}, 2, at::kByte));
  });
}
