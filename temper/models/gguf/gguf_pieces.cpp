#include "temper/models/gguf/gguf_pieces.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/models/files/expert_tensors.h"

namespace temper::models {
namespace {

// The modules that decoders have in common; those of a family's own are in its GgufArchitecture.
constexpr GgufName kBlockNames[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

const char* find_gguf_name(std::span<const GgufName> names, std::string_view own) {
  for (const GgufName& name : names)
    if (own == name.own) return name.gguf;
  return nullptr;
}

// llama.cpp's name of a module of a block or of one of its parameters; null: it has none.
const char* block_name(const std::string& name, const GgufForm& form) {
  if (const char* own = find_gguf_name(form.names, name)) return own;
  if (name == "post_attention_layernorm")
    return form.post_norm ? "post_attention_norm" : "ffn_norm";
  return find_gguf_name(kBlockNames, name);
}

// "blk.L." and the rest of a name within layer L; empty for another.
std::pair<std::string, std::string> block_of(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = name.find('.', kLayers.size());
  if (!name.starts_with(kLayers) || dot == name.npos) return {};
  return {"blk." + name.substr(kLayers.size(), dot - kLayers.size()) + ".", name.substr(dot + 1)};
}

// llama.cpp's name of a parameter that is no expert's; empty where it has none.
std::string tensor_name(const std::string& name, const GgufForm& form) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  if (const char* own = find_gguf_name(form.names, name)) return own;
  const auto [block, rest] = block_of(name);
  const size_t last = rest.rfind('.');
  if (last == rest.npos) return "";
  if (const char* whole = block_name(rest, form)) return block + whole;
  const char* own = block_name(rest.substr(0, last), form);
  return own ? block + own + rest.substr(last) : "";
}

// Rows of each head from [first halves, second halves] to pairs.
at::Tensor interleave(const at::Tensor& value, int64_t heads) {
  std::vector<int64_t> split = {heads, 2, value.size(0) / heads / 2};
  for (int64_t i = 1; i < value.dim(); ++i) split.push_back(value.size(i));
  return value.reshape(split).transpose(1, 2).reshape(value.sizes());
}

// What llama.cpp's architecture reads otherwise than the checkpoint has it.
GgufPart part_of(const std::string& name, const nn::Parameter& parameter, const GgufForm& form) {
  const auto is = [&](std::string_view module) { return name.find(module) != std::string::npos; };
  GgufPart part;
  const auto* norm = dynamic_cast<const nn::RmsNorm*>(&parameter.owner());
  if (norm && norm->add_unit_offset) {
    part.apply = [](const at::Tensor& v) { return v + 1; };
    part.undo = [](const at::Tensor& v) { return v - 1; };
  }
  const bool q = is("self_attn.q_proj."), k = is("self_attn.k_proj.");
  if (form.interleaved && (q || k))
    part.arrange = [heads = q ? form.num_heads : form.num_kv_heads](const at::Tensor& v) {
      return interleave(v, heads);
    };
  if (form.query_scale != 1 &&
      is(form.scale_query_norm ? "self_attn.q_norm." : "self_attn.q_proj."))
    part.apply = [before = part.apply, scale = form.query_scale](const at::Tensor& v) {
      return (before ? before(v) : v) * scale;
    };
  return part;
}

// Taps of a convolution [channels, 1, taps] have no dimension of inputs.
std::vector<int64_t> written_shape(const nn::Parameter& parameter) {
  const auto& shape = parameter.whole_shape();
  std::vector<int64_t> out(shape.begin(), shape.end());
  if (out.size() == 3 && out[1] == 1) out.erase(out.begin() + 1);
  return out;
}

std::vector<int64_t> shape_of_part(const GgufPart& part, const nn::Parameter& parameter) {
  if (!part.arrange) return written_shape(parameter);
  const auto meta = at::TensorOptions(at::kMeta).dtype(at::kFloat);
  return part.arrange(at::empty(parameter.whole_shape(), meta)).sizes().vec();
}

// "blk.L.ffn_down_exps.weight" takes the parameter, or those of gate and up a half of it each.
std::vector<GgufPiece> pieces_of_expert(const std::string& name, const ExpertName& expert,
                                        const nn::Parameter& parameter, const GgufForm& form) {
  const std::string block = block_of(name).first;
  const size_t dot = expert.layer.rfind('.');
  if (dot == expert.layer.npos) return {};
  const std::string module = expert.layer.substr(0, dot), end = expert.layer.substr(dot);
  const auto number = static_cast<int64_t>(expert.expert);
  const std::vector<int64_t> whole = written_shape(parameter);
  if (module == "down_proj") return {{block + "ffn_down_exps" + end, number, whole, {}}};
  if (module != "gate_up_proj") return {};
  std::vector<int64_t> half = whole;
  half[0] /= 2;
  const auto piece = [&](const char* gguf, int64_t first) {
    GgufPart part;
    part.arrange = [first, alternate = form.interleaved_unit](const at::Tensor& v) {
      const int64_t rows = v.size(0) / 2;
      return alternate ? v.slice(0, first, v.size(0), 2) : v.narrow(0, first * rows, rows);
    };
    return GgufPiece{block + gguf + end, number, half, std::move(part)};
  };
  return {piece("ffn_gate_exps", 0), piece("ffn_up_exps", 1)};
}

}  // namespace

at::Tensor GgufPiece::made(const at::Tensor& value) const {
  const at::Tensor of_file = part.apply ? part.apply(value) : value;
  return (part.arrange ? part.arrange(of_file) : of_file).reshape(shape);
}

at::Tensor GgufPiece::sources(at::IntArrayRef parameter_shape) const {
  std::vector<int64_t> probed = parameter_shape.vec();
  if (!part.elements)
    for (size_t i = 1; i < probed.size(); ++i) probed[i] = 1;
  int64_t count = 1;
  for (const int64_t extent : probed) count *= extent;
  const at::Tensor numbers = at::arange(count, at::kLong).reshape(probed);
  return (part.arrange ? part.arrange(numbers) : numbers).reshape(-1).contiguous();
}

std::vector<GgufPiece> gguf_pieces(const std::string& name, const nn::Parameter& parameter,
                                   const GgufForm& form) {
  if (const auto expert = expert_name(name))
    return pieces_of_expert(name, *expert, parameter, form);
  std::vector<GgufPiece> pieces;
  const auto [block, rest] = block_of(name);
  for (const GgufPart& part : form.parts)
    if (part.own == rest)
      pieces.push_back({block + part.gguf, -1, shape_of_part(part, parameter), part});
  if (!pieces.empty()) return pieces;
  const std::string own = tensor_name(name, form);
  if (own.empty()) return {};
  return {{own, -1, written_shape(parameter), part_of(name, parameter, form)}};
}

}  // namespace temper::models
