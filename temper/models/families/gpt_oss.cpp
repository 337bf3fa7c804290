// gpt-oss (OpenAI, arXiv 2508.10925, section 2): every other layer has a window; each head's
// softmax has a sink; experts with biases, whose gated units are limited, chosen by a router with a
// bias.
//   expert: down(silu(alpha g) / alpha * (u + 1)), [g, u] = gate_up(x) kept within the limit
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/config_values.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/gguf/gguf_form.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {
namespace {

// transformers' where the config names none.
HfConfig with_gpt_oss_yarn(const HfConfig& config) {
  return filled(config, "rope_parameters",
                {{"rope_type", "yarn"},
                 {"factor", 32},
                 {"original_max_position_embeddings", 4096},
                 {"truncate", false}});
}

DecoderConfig gpt_oss_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 201088,
                           .hidden_size = 2880,
                           .intermediate_size = 2880,
                           .num_hidden_layers = 36,
                           .num_attention_heads = 64,
                           .num_key_value_heads = 8,
                           .head_dim = 64,
                           .max_position_embeddings = 131072,
                           .norm_eps = 1e-5});
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", true);
  c.attention.sinks = true;
  c.activation = ops::Activation::kSilu;  // whatever hidden_act says
  c.window = windows_of(config, c.num_hidden_layers, window_or_none(config, 128),
                        [](int64_t layer) { return layer % 2 == 0; });
  c.rotary = with_gpt_oss_yarn(config).rotary(150000, c.max_position_embeddings);
  SparseConfig sparse{.router = read_router(config, 128, 4),
                      .width = c.intermediate_size,
                      .layers = {},
                      .router_bias = true,
                      .expert_bias = true,
                      .unit = {.interleaved = true,
                               .limit = number_above(config, "swiglu_limit", 0, 7),
                               .alpha = number_above(config, "swiglu_alpha", 0, 1.702)},
                      .gate = "router"};
  sparse.router.normalize = true;
  set_sparse(c, std::move(sparse));
  return c;
}

// [rows, columns] of `size` bytes each to [columns, rows].
template <size_t size>
void transpose_bytes(const std::byte* from, int64_t rows, int64_t columns, std::byte* to) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r)
        for (int64_t c = c0; c < std::min(c0 + kTile, columns); ++c)
          std::memcpy(to + static_cast<size_t>(c * rows + r) * size,
                      from + static_cast<size_t>(r * columns + c) * size, size);
}

// A matrix whose other dimension comes first, made when it is read.
TensorView transposed(TensorView view) {
  const size_t size = dtype_size(view.dtype);
  if (view.shape.size() != 2 || (size != 2 && size != 4)) return view;  // an error names it
  TensorView out;
  out.dtype = view.dtype;
  out.shape = {view.shape[1], view.shape[0]};
  out.num_bytes = view.num_bytes;
  out.make = [view = std::move(view), size, shape = out.shape] {
    const TensorView here = made_view(view);
    const auto memory = std::make_shared<std::vector<std::byte>>(here.num_bytes);
    (size == 2 ? &transpose_bytes<2> : &transpose_bytes<4>)(here.data, shape[1], shape[0],
                                                            memory->data());
    give_back_pages(here);
    return TensorView{.dtype = here.dtype,
                      .shape = shape,
                      .data = memory->data(),
                      .num_bytes = memory->size(),
                      .owner = memory};
  };
  return out;
}

bool is_expert_weight(const std::string& name) {
  return expert_name(name) && name.ends_with(".weight");
}

// Stacks have inputs before outputs, but for MXFP4's, which have rows of outputs.
void read_gpt_oss(TensorMap& tensors, const HfConfig&) {
  read_experts(tensors, {});
  for (auto& [name, view] : tensors)
    if (is_expert_weight(name) && !coded_matrix(view)) view = transposed(std::move(view));
}
void write_gpt_oss(NamedTensors& tensors) {
  for (auto& [name, view] : tensors)
    if (is_expert_weight(name)) view = transposed(std::move(view));
  write_experts(tensors, ExpertForm::kStacked, {});
}

constexpr GgufName kGptOssGgufNames[] = {
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.router", "ffn_gate_inp"},
};

// llama.cpp has the experts' unit and the bias of attention's output as gpt-oss has them.
void refuse_other_units(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  const ops::GatedUnit& unit = c.sparse->unit;
  if (unit.limit != 7) form.refuse(source, "swiglu_limit", str("found ", unit.limit, ", not 7"));
  if (std::abs(unit.alpha - 1.702) > 1e-9)
    form.refuse(source, "swiglu_alpha", str("found ", unit.alpha, ", not 1.702"));
  if (!c.attention.o_bias) form.refuse(source, "attention_bias", "no bias of attention's output");
}

// Of yarn's blend, gpt-oss rounds neither end.
void read_gpt_oss_gguf(const GgufSource& source, Json& config) {
  read_gguf_experts(source, "num_local_experts", "intermediate_size", config);
  if (config.contains("rope_scaling") && config["rope_scaling"]["rope_type"] == "yarn")
    config["rope_scaling"]["truncate"] = false;
  else if (!config.contains("rope_scaling"))
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config["rope_theta"]}};
}

const RegisteredFamily kGptOss(
    {.model_type = "gpt_oss",
     .help = "gpt-oss: attention sinks, windows, experts with biases and limits; reads MXFP4",
     .paper = "arXiv 2508.10925",
     .config = &gpt_oss_config,
     .causal_lm = "GptOssForCausalLM",
     .sequence_classification = "GptOssForSequenceClassification",
     .sanitize = &read_gpt_oss,
     .restore = &write_gpt_oss,
     .checkpoint_format = "mxfp4",
     .gguf = GgufArchitecture{.name = "gpt-oss",
                              .output_bias = true,
                              .needs_head = true,
                              .post_norm = true,
                              .windows = true,
                              .window_period = 2,
                              .names = kGptOssGgufNames,
                              .add = &refuse_other_units,
                              .read = &read_gpt_oss_gguf}});

}  // namespace
}  // namespace temper::models
