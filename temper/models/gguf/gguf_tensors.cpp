#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/models/files/tensors.h"
#include "temper/models/gguf/gguf.h"

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

// A parameter's value as llama.cpp's architecture reads it, float32.
at::Tensor converted(const std::string& name, const nn::Parameter& parameter, at::Tensor value,
                     const GgufForm& form) {
  const auto is = [&](std::string_view module) { return name.find(module) != std::string::npos; };
  const auto* norm = dynamic_cast<const nn::RmsNorm*>(&parameter.owner());
  if (norm && norm->add_unit_offset) value = value + 1;
  if (form.interleaved && is("self_attn.q_proj.")) value = interleave(value, form.num_heads);
  if (form.interleaved && is("self_attn.k_proj.")) value = interleave(value, form.num_kv_heads);
  if (form.query_scale != 1 &&
      is(form.scale_query_norm ? "self_attn.q_norm." : "self_attn.q_proj."))
    value = value * form.query_scale;
  return value;
}

// What llama.cpp reads in float32 alone: vectors, also those of all experts together, routers, and
// the taps of convolutions.
bool is_float32(const std::string& name, size_t dimensions) {
  const auto is = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  return dimensions < 2 || name.ends_with(".bias") || is(".ffn_gate_inp.") || is(".conv.") ||
         is(".ssm_conv1d.");
}

// Taps of a convolution [channels, 1, taps] have no dimension of inputs.
std::vector<int64_t> written_shape(const nn::Parameter& parameter) {
  const auto& shape = parameter.shape();
  std::vector<int64_t> out(shape.begin(), shape.end());
  if (out.size() == 3 && out[1] == 1) out.erase(out.begin() + 1);
  return out;
}

// The same parameter of each expert, or one half of it.
struct StackedExperts {
  enum class Half { kNone, kGate, kUp };
  size_t place = 0;  // among the tensors
  std::vector<nn::Parameter*> experts;
  Half half = Half::kNone;
  bool interleaved = false;  // rows of gate and up alternate

  int64_t rows() const { return experts[0]->shape()[0] / (half == Half::kNone ? 1 : 2); }
  std::vector<int64_t> shape() const {
    const auto& own = experts[0]->shape();
    std::vector<int64_t> out(own.begin(), own.end());
    out[0] = rows();
    out.insert(out.begin(), static_cast<int64_t>(experts.size()));
    return out;
  }
  at::Tensor part(const at::Tensor& value) const {
    if (half == Half::kNone) return value;
    const int64_t first = half == Half::kGate ? 0 : 1;
    return interleaved ? value.slice(0, first, value.size(0), 2)
                       : value.narrow(0, first * rows(), rows());
  }
};

class GgufTensors {
 public:
  GgufTensors(const GgufForm& form, at::ScalarType dtype, const ValueOf& value)
      : form_(form), dtype_(dtype), value_(value) {}

  void add(const std::string& name, nn::Parameter& parameter) {
    if (const auto expert = expert_name(name)) return add_expert(name, *expert, parameter);
    if (add_parts(name, parameter)) return;
    const std::string own = tensor_name(name, form_);
    check(!own.empty(), "`", name, "` has no name in GGUF");
    add_whole(own, name, parameter);
    if (own == "token_embd.weight" && form_.repeats_embedding)
      add_whole("output.weight", name, parameter);
  }

  std::vector<std::pair<std::string, TensorView>> take() {
    for (auto& entry : stacks_) set_stacked(std::move(entry.second));
    add_factors("rope_freqs.weight", form_.rope_factors);
    add_factors("rope_factors_long.weight", form_.long_factors);
    add_factors("rope_factors_short.weight", form_.short_factors);
    return std::move(tensors_);
  }

 private:
  using Half = StackedExperts::Half;

  void add_whole(const std::string& own, const std::string& name, nn::Parameter& parameter) {
    const std::vector<int64_t> shape = written_shape(parameter);
    const auto type = is_float32(own, shape.size()) ? at::kFloat : dtype_;
    tensors_.emplace_back(
        own,
        view_of(shape, type, [name, type, shape, value = value_, p = &parameter, form = form_] {
          const at::NoGradGuard no_grad;
          const at::Tensor own = value(*p).detach().to(at::kFloat);
          return rounded(converted(name, *p, own, form).reshape(shape), type, name);
        }));
  }

  // Whether the form makes tensors of the parameter, which are then added.
  bool add_parts(const std::string& name, nn::Parameter& parameter) {
    const auto [block, rest] = block_of(name);
    bool found = false;
    for (const GgufPart& part : form_.parts) {
      if (part.own != rest) continue;
      found = true;
      const auto meta = at::TensorOptions(at::kMeta).dtype(at::kFloat);
      const std::vector<int64_t> shape =
          part.make(at::empty(parameter.shape(), meta)).sizes().vec();
      const std::string own = block + part.gguf;
      const auto type = is_float32(own, shape.size()) ? at::kFloat : dtype_;
      tensors_.emplace_back(
          own, view_of(shape, type, [name, type, value = value_, p = &parameter, make = part.make] {
            const at::NoGradGuard no_grad;
            return rounded(make(value(*p).detach().to(at::kFloat)).contiguous(), type, name);
          }));
    }
    return found;
  }

  // "blk.L.ffn_down_exps.weight" takes the parameter, or those of gate and up a half of it each.
  void add_expert(const std::string& name, const ExpertName& expert, nn::Parameter& parameter) {
    const std::string block = block_of(name).first;
    const size_t dot = expert.layer.rfind('.');
    const std::string module = expert.layer.substr(0, dot), end = expert.layer.substr(dot);
    check(module == "down_proj" || module == "gate_up_proj", "`", name, "` has no name in GGUF");
    if (module == "down_proj")
      return push(block + "ffn_down_exps" + end, Half::kNone, expert.expert, parameter);
    push(block + "ffn_gate_exps" + end, Half::kGate, expert.expert, parameter);
    push(block + "ffn_up_exps" + end, Half::kUp, expert.expert, parameter);
  }

  void push(const std::string& own, Half half, size_t expert, nn::Parameter& parameter) {
    const auto [found, fresh] = stacks_.try_emplace(own);
    StackedExperts& stack = found->second;
    if (fresh) {
      stack.place = tensors_.size();
      tensors_.emplace_back(own, TensorView());
      stack.half = half;
      stack.interleaved = form_.interleaved_unit;
    }
    check(expert == stack.experts.size(), "`", own, "`: experts are not in order");
    stack.experts.push_back(&parameter);
  }

  void set_stacked(StackedExperts stack) {
    auto& [own, view] = tensors_[stack.place];
    const std::vector<int64_t> shape = stack.shape();
    const auto type = is_float32(own, shape.size()) ? at::kFloat : dtype_;
    view = view_of(shape, type, [own, type, shape, value = value_, stack = std::move(stack)] {
      const at::NoGradGuard no_grad;
      at::Tensor all = at::empty(shape, type);
      for (size_t i = 0; i < stack.experts.size(); ++i) {
        const at::Tensor of_expert = value(*stack.experts[i]).detach().to(at::kFloat);
        all[static_cast<int64_t>(i)].copy_(rounded(stack.part(of_expert), type, own));
      }
      return all;
    });
  }

  static at::Tensor rounded(const at::Tensor& value, at::ScalarType type, const std::string& name) {
    const at::Tensor made = value.to(type);
    check(type != at::kHalf || at::isfinite(made).all().item<bool>(), "`", name,
          "` has values beyond float16's range; export with --dtype bfloat16 or float32");
    return made;
  }

  void add_factors(const char* name, const std::vector<float>& factors) {
    if (!factors.empty()) tensors_.emplace_back(name, to_view(at::tensor(factors)));
  }

  const GgufForm& form_;
  at::ScalarType dtype_;
  const ValueOf& value_;
  std::vector<std::pair<std::string, TensorView>> tensors_;
  std::map<std::string, StackedExperts> stacks_;  // by name
};

}  // namespace

at::Tensor own_value(nn::Parameter& parameter) { return parameter.float_value(); }

std::vector<std::pair<std::string, TensorView>> gguf_tensors(CausalLM& model, const GgufForm& form,
                                                             at::ScalarType dtype,
                                                             const ValueOf& value) {
  GgufTensors tensors(form, dtype, value);
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (!is_of_adapter(name)) tensors.add(name, parameter);
  });
  return tensors.take();
}

}  // namespace temper::models
