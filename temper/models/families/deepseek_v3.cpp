// DeepSeek-V3 and R1 (arXiv 2412.19437, section 2.1): latent attention; after the first layers
// experts that are chosen in groups by sigmoids and a bias, beside one that every token goes
// through. Kimi K2 and Moonlight are of this family, too.
#include <ATen/ATen.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/models/files/expert_tensors.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/gguf/gguf_form.h"
#include "temper/models/sparse_mlp.h"

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
  const int64_t rotated = c.latent->rotated_dim;
  if (config.is_null("head_dim") || config.integer("head_dim", rotated) != rotated)
    config.fail("head_dim", temper::str("expected ", rotated, ", as qk_rope_head_dim, or no key"));
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
  read_experts(tensors, {});
}
void write_deepseek_v3(NamedTensors& tensors) { write_experts(tensors, ExpertForm::kSingle, {}); }

constexpr GgufName kDeepseekGgufNames[] = {
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
};

// llama.cpp keeps latents as keys and values: queries go through the part of kv_b that makes keys,
// transposed, and what is attended through the part that makes values.
void add_latent_parts(const nn::LatentConfig& l, int64_t heads, bool pairs, GgufForm& form) {
  const auto by_head = [heads](const at::Tensor& v) { return v.view({heads, -1, v.size(1)}); };
  form.parts.push_back({"self_attn.kv_b_proj.weight", "attn_k_b.weight",
                        [by_head, l](const at::Tensor& v) {
                          return by_head(v).narrow(1, 0, l.plain_dim).transpose(1, 2);
                        },
                        /*elements=*/true});
  form.parts.push_back(
      {"self_attn.kv_b_proj.weight", "attn_v_b.weight", [by_head, l](const at::Tensor& v) {
         return by_head(v).narrow(1, l.plain_dim, l.value_dim);
       }});
  if (pairs) return;
  // The last rows of each head rotate: from [first halves, second halves] to pairs.
  const auto add = [&](const std::string& name, const char* gguf, int64_t parts) {
    form.parts.push_back({"self_attn." + name + ".weight", str(gguf, ".weight"),
                          [parts, rotated = l.rotated_dim](const at::Tensor& v) {
                            const at::Tensor all = v.view({parts, -1, v.size(1)});
                            const int64_t plain = all.size(1) - rotated;
                            const at::Tensor last = all.narrow(1, plain, rotated);
                            const at::Tensor paired =
                                last.reshape({parts, 2, rotated / 2, v.size(1)}).transpose(1, 2);
                            return at::cat({all.narrow(1, 0, plain), paired.reshape(last.sizes())},
                                           1)
                                .view(v.sizes());
                          }});
  };
  add("q_proj", "attn_q", heads);
  add("q_b_proj", "attn_q_b", heads);
  add("kv_a_proj_with_mqa", "attn_kv_a_mqa", 1);
}

// llama.cpp's scales with a = attn_factor, l = 10 yarn_log_multiplier, m(k) = 1 + 0.1 k ln(factor):
//                  cosines and sines    scores, beside 1 / sqrt(query_dim)
//   yarn, l != 0   a                    (a m(l))²
//   yarn, l = 0    a m(1)               (a m(1))²
//   linear         a                    (a m(1) m(l))²
// a and l are those with which these are the model's.
void add_latent_scale(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  using Kind = nn::RotaryConfig::Kind;
  const double factor = score_factor(source, c.rotary);
  const bool yarn = c.rotary.kind == Kind::kYarn, linear = c.rotary.kind == Kind::kLinear;
  const char* key = source.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!yarn && !linear) {
    if (factor != 1) form.refuse(source, key, "`mscale_all_dim` without yarn");
    return;
  }
  if (c.rotary.factor <= 1)
    form.refuse(source, key, str("`factor` ", c.rotary.factor, ", not above 1"));
  const double m = nn::yarn_attention_factor(c.rotary.factor);
  const double a = yarn ? c.rotary.attention_factor : 1, of_scores = std::sqrt(factor);
  if (yarn && std::abs(of_scores / a - 1) < 1e-9)
    return form.set_real("rope.scaling.attn_factor", a / m);
  const double l = (of_scores / (yarn ? a : m) - 1) / (m - 1);
  form.set_real("rope.scaling.attn_factor", a);
  form.set_real("rope.scaling.yarn_log_multiplier", 0.1 * l);
}

void add_latent_gguf(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  const nn::LatentConfig& l = *c.latent;
  const int64_t layers = c.num_hidden_layers;
  // llama.cpp takes models of these sizes for DeepSeek-V2-Lite's kin, whose queries are one layer.
  const bool lite = layers == 26 || layers == 27 || (layers == 48 && c.vocab_size == 128256);
  if (lite && l.q_rank > 0)
    form.refuse(source, "q_lora_rank",
                str("queries of rank ", l.q_rank, " in a model of ", layers, " layers"));
  form.set_number("attention.q_lora_rank", l.q_rank);
  form.set_number("attention.kv_lora_rank", l.kv_rank);
  form.set_number("attention.head_count_kv", 1);
  form.set_number("attention.key_length", l.kv_rank + l.rotated_dim);
  form.set_number("attention.value_length", l.kv_rank);
  form.set_number("attention.key_length_mla", l.query_dim());
  form.set_number("attention.value_length_mla", l.value_dim);
  add_latent_scale(source, c, form);
  add_latent_parts(l, c.attention.num_heads, c.rotary.interleaved, form);
  if (c.attention.norm_eps != l.norm_eps)
    form.notes.push_back(
        "llama.cpp's norms of latents have `rms_norm_eps`, not 1e-6: its log-probabilities differ "
        "a little");
}

// The inverse of add_latent_scale: `mscale_all_dim` M with 1 + 0.1 M ln(factor) = sqrt(scores).
void read_latent_scale(const GgufSource& source, Json& config) {
  if (!config.contains("rope_scaling")) return;
  Json& rope = config["rope_scaling"];
  const double factor = rope["factor"], a = source.real("rope.scaling.attn_factor", 1),
               l = 10 * source.real("rope.scaling.yarn_log_multiplier", 0);
  if (factor <= 1) source.fail("rope.scaling.factor", str("found ", factor, ", not above 1"));
  const bool yarn = rope["rope_type"] == "yarn";
  const double m = nn::yarn_attention_factor(factor), m_l = 1 + l * (m - 1);
  const double cosines = yarn && l == 0 ? a * m : a,
               scores = yarn && l != 0 ? a * m_l : a * m * m_l;
  rope["mscale_all_dim"] = std::round((scores - 1) / (m - 1) * 1e6) / 1e6;
  if (yarn) rope["attention_factor"] = cosines;
}

void read_latent_gguf(const GgufSource& source, Json& config) {
  const int64_t rotated = source.number("rope.dimension_count"),
                query = source.number("attention.key_length_mla"),
                rank = source.number("attention.q_lora_rank", 0);
  if (query <= rotated)
    source.fail("attention.key_length_mla",
                str("found ", query, ", expected more than rope.dimension_count, ", rotated));
  read_gguf_sigmoids(source, config);
  config.erase("head_dim");
  config["num_key_value_heads"] = config["num_attention_heads"];
  config["q_lora_rank"] = rank == 0 ? Json() : Json(rank);
  config["kv_lora_rank"] = source.number("attention.kv_lora_rank");
  config["qk_rope_head_dim"] = rotated;
  config["qk_nope_head_dim"] = query - rotated;
  config["v_head_dim"] = source.number("attention.value_length_mla");
  read_latent_scale(source, config);
}

const RegisteredFamily kDeepseekV3(
    {.model_type = "deepseek_v3",
     .help = "DeepSeek-V3 and R1, Kimi K2, Moonlight: latent attention, experts in groups",
     .paper = "arXiv 2412.19437",
     .config = &deepseek_v3_config,
     .causal_lm = "DeepseekV3ForCausalLM",
     .sequence_classification = "DeepseekV3ForSequenceClassification",
     .sanitize = &read_deepseek_v3,
     .restore = &write_deepseek_v3,
     .gguf = GgufArchitecture{.name = "deepseek2",
                              .interleaved = true,
                              .own_scale = true,
                              .weights = GgufArchitecture::Weights::kByKey,
                              .sigmoids = true,
                              .dense_first = true,
                              .names = kDeepseekGgufNames,
                              .add = &add_latent_gguf,
                              .read = &read_latent_gguf}});

}  // namespace
}  // namespace temper::models
