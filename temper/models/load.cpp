#include "temper/models/load.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/random.h"
#include "temper/io/weight_files.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kInt64:
      return at::kLong;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt8:
      return at::kChar;
    case DType::kUInt8:
      return at::kByte;
    case DType::kBool:
      return at::kBool;
  }
  return at::kFloat;
}
DType dtype_of(at::ScalarType type) {
  if (type == at::kBFloat16) return DType::kBFloat16;
  if (type == at::kHalf) return DType::kFloat16;
  if (type == at::kDouble) return DType::kFloat64;
  if (type == at::kByte) return DType::kUInt8;
  return DType::kFloat32;
}

// A tensor's name without the wrapping of a multimodal checkpoint.
std::string plain_name(const std::string& name) {
  for (const auto& [prefix, replacement] :
       {std::pair<std::string, std::string>{"language_model.model.", "model."},
        {"model.language_model.", "model."},
        {"language_model.lm_head.", "lm_head."}})
    if (name.starts_with(prefix)) return replacement + name.substr(prefix.size());
  return name;
}

// Tensors of a checkpoint that are no parameters of its language model.
bool ignorable(const std::string& name, bool multimodal) {
  if (name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight") return true;
  return multimodal && (name.find("vision_tower") != std::string::npos ||
                        name.find("multi_modal_projector") != std::string::npos);
}

uint64_t hash_name(const std::string& name) {  // FNV-1a
  uint64_t hash = 1469598103934665603ull;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return hash;
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 5; ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > 5) out += temper::str(" and ", names.size() - 5, " more");
  return out;
}
}  // namespace

at::Tensor to_tensor(const TensorView& view, at::ScalarType dtype) {
  const at::ScalarType stored = scalar_type(view.dtype);
  // at::from_blob's deleter keeps the mapping alive.
  const auto options = at::TensorOptions().dtype(stored);
  if (view.num_bytes == 0) return at::empty(view.shape, options.dtype(dtype));
  if (reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype) != 0) {
    at::Tensor copy = at::empty(view.shape, options);
    std::memcpy(copy.mutable_data_ptr(), view.data, view.num_bytes);
    return copy.to(dtype);
  }
  const auto owner = view.owner;
  return at::from_blob(
             const_cast<std::byte*>(view.data), view.shape, [owner](void*) {}, options)
      .to(dtype);
}

TensorView to_view(const at::Tensor& tensor) {
  const at::Tensor contiguous = tensor.detach().contiguous();
  return {dtype_of(contiguous.scalar_type()), contiguous.sizes().vec(),
          static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes(),
          std::make_shared<at::Tensor>(contiguous)};
}

std::vector<int32_t> eos_ids(const std::string& directory, const HfConfig& config) {
  std::vector<int32_t> ids;
  const auto add = [&](const Json& json) {
    const auto it = json.find("eos_token_id");
    if (it == json.end()) return;
    const auto one = [&](const Json& id) {
      if (id.is_number_integer() &&
          std::find(ids.begin(), ids.end(), id.get<int32_t>()) == ids.end())
        ids.push_back(id.get<int32_t>());
    };
    if (it->is_array())
      for (const Json& id : *it) one(id);
    else
      one(*it);
  };
  const std::string generation = directory + "/generation_config.json";
  if (fs::exists(generation)) {
    const Json json = read_json_file(generation, size_t{1} << 20);
    if (json.is_object()) add(json);
  }
  add(config.json());
  return ids;
}

std::unique_ptr<CausalLM> load_model(const std::string& directory, at::ScalarType dtype) {
  check(dtype == at::kFloat || dtype == at::kBFloat16,
        "load_model: expected float32 or bfloat16, found ", dtype);
  const HfConfig config = HfConfig::load(directory);
  std::unique_ptr<CausalLM> model = make_model(config);
  if (dtype == at::kBFloat16) compute_in_bfloat16(*model);
  std::map<std::string, TensorView> weights;
  for (auto& [name, view] : read_weights(directory)) weights[plain_name(name)] = view;
  std::vector<std::string> missing, wrong, left_over;
  model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    auto it = weights.find(name);
    if (it == weights.end() && name.starts_with("model."))
      it = weights.find(name.substr(6));  // a body saved without its head
    if (it == weights.end()) {
      missing.push_back(name);
    } else {
      if (it->second.shape != parameter.shape())
        wrong.push_back(temper::str(name, " is ", at::IntArrayRef(it->second.shape), ", expected ",
                                    at::IntArrayRef(parameter.shape())));
      else
        parameter.set_value(
            to_tensor(it->second, parameter.bfloat16() ? at::kBFloat16 : at::kFloat));
      weights.erase(it);
    }
  });
  for (const auto& [name, view] : weights)
    if (!ignorable(name, config.multimodal())) left_over.push_back(name);
  check<ConfigError>(missing.empty(), directory, ": the weights lack ", listed(missing),
                     left_over.empty() ? "" : "; not recognised: ", listed(left_over));
  check<ConfigError>(wrong.empty(), directory, ": wrong shapes: ", listed(wrong),
                     "; config.json does not belong to these weights");
  check<ConfigError>(left_over.empty(), directory, ": the weights hold tensors that a ",
                     config.model_type(), " does not have: ", listed(left_over));
  model->eos_token_ids = eos_ids(directory, config);
  return model;
}

at::Tensor initial_value(const nn::Parameter& parameter, const std::string& name, uint64_t seed) {
  const nn::Init& init = parameter.init();
  at::Tensor value = at::empty(parameter.shape(), at::kFloat);
  float* data = value.mutable_data_ptr<float>();
  const int64_t count = value.numel();
  if (init.kind != nn::Init::Kind::kNormal) {
    std::fill(data, data + count, init.kind == nn::Init::Kind::kOnes ? 1.0f : 0.0f);
    return value;
  }
  const RandomStream stream(seed, RandomPurpose::kInit, hash_name(name));
  const float deviation = static_cast<float>(init.deviation);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) data[i] = deviation * stream.normal(static_cast<uint64_t>(i));
  return value;
}

std::unique_ptr<CausalLM> init_model(const HfConfig& config, uint64_t seed) {
  std::unique_ptr<CausalLM> model = make_model(config);
  // The row of the padding token begins at zero, as an embedding with a padding index does.
  const int64_t padding =
      config.has("pad_token_id") ? static_cast<int64_t>(config.number("pad_token_id", -1)) : -1;
  model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    at::Tensor value = initial_value(parameter, name, seed);
    if (name.ends_with("embed_tokens.weight") && padding >= 0 && padding < value.size(0))
      value[padding].zero_();
    parameter.set_value(value);
  });
  return model;
}

void save_weights(CausalLM& model, const std::string& directory, at::ScalarType dtype) {
  fs::create_directories(directory);
  std::vector<std::pair<std::string, TensorView>> tensors;
  const at::NoGradGuard no_grad;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (name.find(".lora_A.") != std::string::npos || name.find(".lora_B.") != std::string::npos)
      return;
    tensors.emplace_back(name, to_view(parameter.value().to(dtype)));
  });
  write_safetensors_model(directory, tensors);
}

void write_model_files(const ModelFiles& files, const std::string& directory,
                       at::ScalarType dtype) {
  fs::create_directories(directory);
  const std::string config_path =
      fs::is_directory(files.config) ? files.config + "/config.json" : files.config;
  Json config = read_json_file(config_path, size_t{64} << 20);
  if (config.contains("text_config")) {
    Json text = config["text_config"];
    for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id"})
      if (!text.contains(key) && config.contains(key)) text[key] = config[key];
    text["architectures"] = {"Gemma3ForCausalLM"};
    if (!text.contains("model_type"))
      text["model_type"] = HfConfig::load(files.config).model_type();
    config = text;
  }
  const char* name = dtype == at::kBFloat16 ? "bfloat16"
                     : dtype == at::kHalf   ? "float16"
                                            : "float32";
  if (config.contains("torch_dtype"))
    config["torch_dtype"] = name;
  else
    config["dtype"] = name;
  write_file_atomic(directory + "/config.json", config.dump(2) + "\n");
  if (files.others.empty()) return;
  for (const char* file :
       {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
        "tokenizer.model", "chat_template.jinja", "chat_template.json"}) {
    const std::string from = files.others + "/" + file;
    // Written anew rather than copied: a read-only original must not make a read-only copy.
    if (fs::is_regular_file(from)) write_file_atomic(directory + "/" + file, read_file(from));
  }
}

}  // namespace temper::models
