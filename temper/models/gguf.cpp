#include "temper/models/gguf.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/io/gguf_tokenizer.h"
#include "temper/models/adapter_parts.h"
#include "temper/models/load.h"
#include "temper/models/tensors.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

constexpr uint32_t kFloat32File = 0, kFloat16File = 1, kBFloat16File = 32;  // general.file_type

std::optional<int32_t> id_of(const HfConfig& config, const char* key) {
  const auto found = config.json().find(key);
  if (found == config.json().end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int32_t>();
}

// llama.cpp's name of a module of a block; null: it has none.
const char* block_name(const std::string& name, bool sandwich) {
  static const std::map<std::string, const char*> names = {
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"}};
  if (name == "post_attention_layernorm") return sandwich ? "post_attention_norm" : "ffn_norm";
  const auto found = names.find(name);
  return found == names.end() ? nullptr : found->second;
}

// llama.cpp's name of a parameter; empty where it has none.
std::string tensor_name(const std::string& name, bool sandwich) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = name.find('.', kLayers.size()), last = name.rfind('.');
  if (!name.starts_with(kLayers) || dot == name.npos || last <= dot) return "";
  const std::string layer = name.substr(kLayers.size(), dot - kLayers.size());
  const char* own = block_name(name.substr(dot + 1, last - dot - 1), sandwich);
  return own ? "blk." + layer + "." + own + name.substr(last) : "";
}

// Rows of each head from [first halves, second halves] to pairs.
at::Tensor interleave(const at::Tensor& value, int64_t heads) {
  std::vector<int64_t> split = {heads, 2, value.size(0) / heads / 2};
  for (int64_t i = 1; i < value.dim(); ++i) split.push_back(value.size(i));
  return value.reshape(split).transpose(1, 2).reshape(value.sizes());
}

// A parameter's value as llama.cpp's architecture reads it, float32.
at::Tensor converted(const std::string& name, at::Tensor value, const GgufForm& form) {
  const auto is = [&](std::string_view module) { return name.find(module) != std::string::npos; };
  if (form.norm_plus_one && name.ends_with("norm.weight")) value = value + 1;
  if (form.interleaved && is("self_attn.q_proj.")) value = interleave(value, form.num_heads);
  if (form.interleaved && is("self_attn.k_proj.")) value = interleave(value, form.num_kv_heads);
  if (form.query_scale != 1 &&
      is(form.scale_query_norm ? "self_attn.q_norm." : "self_attn.q_proj."))
    value = value * form.query_scale;
  return value;
}

void compare(const GgufFile& file, const GgufHeader& header, const std::string& path,
             const std::vector<std::pair<std::string, TensorView>>& tensors) {
  check(file.keys == header.keys, path, ": keys read back differently from what was written");
  check(file.tensors.size() == tensors.size(), path, ": ", file.tensors.size(),
        " tensors read back, ", tensors.size(), " were written");
  for (const auto& [name, view] : tensors) {
    const auto read = file.tensors.find(name);
    check(read != file.tensors.end() && read->second.dtype == view.dtype &&
              read->second.shape == view.shape,
          path, ": `", name, "` reads back in another form");
    const TensorView made = view.make ? view.make() : view;
    check(std::memcmp(made.data, read->second.data, made.num_bytes) == 0, path, ": `", name,
          "` reads back differently from what was written");
    give_back_pages(read->second);
  }
}

}  // namespace

GgufHeader gguf_header(const std::string& directory, at::ScalarType dtype,
                       const std::string& adapter) {
  const HfConfig config = HfConfig::load(directory);
  GgufHeader header{.form = gguf_form(config)};
  std::error_code ignored;
  const fs::path named = fs::weakly_canonical(directory, ignored);
  header.keys = {{"general.architecture", header.form.architecture},
                 {"general.type", std::string("model")},
                 {"general.name", named.filename().string()},
                 {"general.file_type", dtype == at::kBFloat16 ? kBFloat16File
                                       : dtype == at::kHalf   ? kFloat16File
                                                              : kFloat32File}};
  const auto add = [&](const GgufKeys& keys) {
    header.keys.insert(header.keys.end(), keys.begin(), keys.end());
  };
  add(header.form.keys);
  GgufTokenizer tokenizer = gguf_tokenizer(directory,
                                           {.size = header.form.vocab_size,
                                            .bos = id_of(config, "bos_token_id"),
                                            .pad = id_of(config, "pad_token_id"),
                                            .eos = eos_ids(directory, config)},
                                           adapter);
  add(tokenizer.keys);
  header.notes = std::move(tokenizer.notes);
  return header;
}

at::Tensor own_value(nn::Parameter& parameter) { return parameter.float_value(); }

std::vector<std::pair<std::string, TensorView>> gguf_tensors(CausalLM& model, const GgufForm& form,
                                                             at::ScalarType dtype,
                                                             const ValueOf& value) {
  std::vector<std::pair<std::string, TensorView>> tensors;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (is_of_adapter(name)) return;
    const std::string own = tensor_name(name, form.sandwich);
    check(!own.empty(), "`", name, "` has no name in GGUF");
    const auto type = parameter.shape().size() < 2 ? at::kFloat : dtype;
    tensors.emplace_back(
        own, view_of(parameter.shape(), type, [name, type, value, p = &parameter, form] {
          const at::NoGradGuard no_grad;
          const at::Tensor made = converted(name, value(*p).detach().to(at::kFloat), form).to(type);
          check(type != at::kHalf || at::isfinite(made).all().item<bool>(), "`", name,
                "` has values beyond float16's range; export with --dtype bfloat16 or float32");
          return made;
        }));
  });
  if (!form.rope_factors.empty())
    tensors.emplace_back("rope_freqs.weight", to_view(at::tensor(form.rope_factors)));
  return tensors;
}

void save_gguf(CausalLM& model, const GgufHeader& header, const std::string& path,
               at::ScalarType dtype, const ValueOf& value) {
  const auto tensors = gguf_tensors(model, header.form, dtype, value);
  write_gguf(path, header.keys, tensors);
  compare(read_gguf(path), header, path, tensors);
}

}  // namespace temper::models
