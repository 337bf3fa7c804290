// What layers are for, and how ranks divide them, in every family: the modules say it, and the
// names of transformers show that they say it right.
#include <doctest/doctest.h>

#include "temper/models/files/load.h"
#include "temper/nn/role.h"
#include "tests/models/golden.h"

using namespace temper;
using nn::Role;

namespace {

// The role by the name of a parameter, as far as names show it.
Role role_by_name(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("norm")) return Role::kNorm;
  if (has("embed_tokens")) return Role::kEmbedding;
  if (has("lm_head")) return Role::kHead;
  if (has(".experts.")) return Role::kExpert;
  if (has(".self_attn.")) return Role::kAttention;
  if (has(".linear_attn.") || has(".conv.")) return Role::kState;
  if (has(".router.") || has(".mlp.gate.")) return Role::kRouter;
  if (has(".mlp.") || has(".feed_forward.") || has("per_layer_")) return Role::kMlp;
  return Role::kNone;
}

}  // namespace

TEST_CASE("every parameter of every family has the role that its name shows") {
  for (const std::string& name : golden_models()) {
    CAPTURE(name);
    const auto model = models::make_model(models::HfConfig::load(golden_model(name)));
    model->each_parameter([&](const std::string& parameter, nn::Parameter& p) {
      CAPTURE(parameter);
      const Role role = p.owner().role();
      CHECK((role == role_by_name(parameter)));
      CHECK(((role == Role::kNone) == parameter.ends_with(".layer_scalar")));
      if (role == Role::kNorm)
        CHECK(((p.owner().role_around() == Role::kAttention) ==
               (parameter.find(".self_attn.") != std::string::npos)));
    });
  }
  const models::HfConfig config = models::HfConfig::load(golden_model("qwen3"));
  models::ScalarModel scalar(models::make_body(config));
  scalar.each_parameter([](const std::string& parameter, nn::Parameter& p) {
    CHECK(((p.owner().role() == Role::kHead) == (parameter == "score.weight")));
  });
}

TEST_CASE("every matrix of every family splits under tensor parallelism, and no norm does") {
  for (const std::string& name : golden_models()) {
    CAPTURE(name);
    const models::HfConfig config = models::HfConfig::load(golden_model(name));
    size_t outputs = 0, gates = 0;
    models::make_model(config)->each_parameter([&](const std::string& parameter, nn::Parameter& p) {
      CAPTURE(parameter);
      const auto ends = [&](const char* end) { return parameter.ends_with(end); };
      const std::optional<int64_t> dim = p.divides();
      // Each rank has a mixture's experts and routers, latent attention's latents, and what Gemma
      // 4's layers make of their embeddings.
      const bool whole = parameter.find(".experts.") != std::string::npos || ends(".gate.weight") ||
                         ends(".router.weight") || ends(".router.proj.weight") ||
                         parameter.find("_a_proj") != std::string::npos ||
                         ends(".shared_expert_gate.weight") ||
                         parameter.find(".per_layer_") != std::string::npos;
      if (p.shape().size() == 2) CHECK(dim.has_value() != whole);
      if (parameter.find("norm") != std::string::npos) CHECK(!dim.has_value());
      // A bias goes with the outputs; one that is added to a sum over ranks stays whole.
      if (ends("o_proj.bias") || ends("down_proj.bias")) CHECK(!dim.has_value());
      if (ends("q_proj.bias")) CHECK((dim == 0));
      if (whole) return;
      if (ends(".o_proj.weight") || ends(".out_proj.weight")) {  // LFM2's, and delta nets'
        CHECK((dim == 1));
        ++outputs;
      }
      if (ends("up_proj.weight") || ends(".w3.weight") || ends("embed_tokens.weight")) {
        CHECK((dim == 0));
        ++gates;
      }
    });
    CHECK(outputs == static_cast<size_t>(models::make_model(config)->num_layers));
    CHECK(gates > 0);
  }
}
