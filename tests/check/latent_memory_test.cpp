// Memory of models with latent attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/json.h"
#include "temper/check/memory/memory.h"
#include "temper/check/memory/sampling_parts.h"

using namespace temper;
using namespace temper::checks;

TEST_CASE("latents are cached once for all heads, on every rank of a tensor group") {
  const Json config = {{"model_type", "deepseek_v3"},
                       {"vocab_size", 50},
                       {"hidden_size", 16},
                       {"intermediate_size", 20},
                       {"num_hidden_layers", 3},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 4},
                       {"n_routed_experts", 8},
                       {"n_group", 1},
                       {"topk_group", 1},
                       {"moe_intermediate_size", 8}};
  ModelRole role{.role = "policy", .shape = shape_of(models::HfConfig::parse(config, "test"))};
  for (const int64_t tensor : {1, 2}) {
    const ops::CachePage page = cache_page(role, ops::CacheDtype::kFloat32, tensor, at::kCPU);
    CHECK(page.bytes == 3 * page.tokens * 576 * 4);
    CHECK(2 * cache_page(role, ops::CacheDtype::kBFloat16, tensor, at::kCPU).bytes == page.bytes);
  }
  CHECK(std::count_if(role.shape.tensors.begin(), role.shape.tensors.end(),
                      [](const ShapedTensor& t) { return t.absorbed; }) == 3);
}
