// DeepSeek-V3 and R1 (arXiv 2412.19437, section 2.1): latent attention; after the first layers
// experts that are chosen in groups by sigmoids and a bias, beside one that every token goes
// through. Kimi K2 and Moonlight are of this family, too.
#include <cmath>

#include "temper/models/expert_tensors.h"
#include "temper/models/fp8.h"
#include "temper/models/sparse_block.h"

namespace temper::models {
namespace {

constexpr int64_t kMostDimensions = 65536;  // of a head: far above any model's

nn::LatentConfig read_latent(const HfConfig& config) {
  return {.q_rank = config.is_null("q_lora_rank") ? 0 : config.integer("q_lora_rank", 1536),
          .kv_rank = config.integer("kv_lora_rank", 512),
          .plain_dim = config.integer("qk_nope_head_dim", 128, kMostDimensions),
          .rotated_dim = config.integer("qk_rope_head_dim", 64, kMostDimensions),
          .value_dim = config.integer("v_head_dim", 128, kMostDimensions)};
}

// YaRN's sharper softmax: cosines and sines reach only a part of each head, scores all of it.
double score_factor(const HfConfig& config, const nn::RotaryConfig& rotary) {
  const std::optional<HfConfig> rope = config.rope_section();
  const double mscale = rope ? rope->number("mscale_all_dim", 0) : 0;
  if (mscale == 0 || rotary.kind == nn::RotaryConfig::Kind::kDefault) return 1;
  const double factor = nn::yarn_attention_factor(rotary.factor, mscale);
  return factor * factor;
}

DecoderConfig deepseek_v3_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 129280,
                           .hidden_size = 7168,
                           .intermediate_size = 18432,
                           .num_hidden_layers = 61,
                           .num_attention_heads = 128,
                           .num_key_value_heads = 128,
                           .max_position_embeddings = 4096});
  if (c.attention.num_kv_heads != c.attention.num_heads)
    config.fail("num_key_value_heads",
                temper::str("found ", c.attention.num_kv_heads,
                            ", expected as many as num_attention_heads, ", c.attention.num_heads));
  c.latent = read_latent(config);
  c.attention.head_dim = c.latent->head_dim();
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  c.rotary.interleaved = config.boolean("rope_interleave", true);
  c.rotary_dim = c.latent->rotated_dim;
  c.attention.scale =
      score_factor(config, c.rotary) / std::sqrt(static_cast<double>(c.latent->query_dim()));
  SparseConfig sparse{.router = read_router(config, 256, 8),
                      .width = config.integer("moe_intermediate_size", 2048),
                      .layers = {},
                      .correction = true};
  sparse.shared_width = sparse.width * config.integer("n_shared_experts", 1, kMostExperts);
  sparse.router.groups = 8;
  sparse.router.chosen_groups = 4;
  sparse.router.scale = 2.5;
  read_sigmoid_router(config, sparse.router);
  dense_first(config, 3, c.num_hidden_layers, sparse);
  set_sparse(c, std::move(sparse));
  return c;
}

void read_deepseek_v3(TensorMap& tensors, const HfConfig& config) {
  drop_later_layers(tensors, config.integer("num_hidden_layers", 61));
  dequantize_fp8(tensors, config);
  read_experts(tensors, {});
}
void write_deepseek_v3(NamedTensors& tensors) { write_experts(tensors, ExpertForm::kSingle, {}); }

// What makes latents is whole on every rank.
constexpr ShardRule kLatentShards[] = {
    {"*.embed_tokens.weight", Split::kVocabulary},
    {"lm_head.weight", Split::kVocabulary},
    {"*.q_proj.weight", Split::kColumns},
    {"*.q_b_proj.weight", Split::kColumns},
    {"*.kv_b_proj.weight", Split::kColumns},
    {"*.o_proj.weight", Split::kRows},
    {"*.mlp.gate_proj.weight", Split::kColumns},
    {"*.mlp.up_proj.weight", Split::kColumns},
    {"*.mlp.down_proj.weight", Split::kRows},
    {"*.shared_experts.gate_proj.weight", Split::kColumns},
    {"*.shared_experts.up_proj.weight", Split::kColumns},
    {"*.shared_experts.down_proj.weight", Split::kRows},
};

const RegisteredFamily kDeepseekV3(
    {.model_type = "deepseek_v3",
     .help = "DeepSeek-V3 and R1, Kimi K2, Moonlight: latent attention",
     .config = &deepseek_v3_config,
     .make = &make_decoder<SparseBlock>,
     .causal_lm = "DeepseekV3ForCausalLM",
     .sequence_classification = "DeepseekV3ForSequenceClassification",
     .sanitize = &read_deepseek_v3,
     .restore = &write_deepseek_v3,
     .dequantizes = "fp8",
     .shards = kLatentShards});

}  // namespace
}  // namespace temper::models
