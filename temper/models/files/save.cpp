#include "temper/models/files/save.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/safetensors.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/files/load.h"
#include "temper/models/files/tensors.h"
#include "temper/models/files/untied_head.h"
#include "temper/models/vision/save.h"
#include "temper/text/tokenizer/special_tokens.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

constexpr size_t kMostFileBytes = size_t{1} << 30;  // of a tokenizer's file
constexpr int kMostTemplates = 100;
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "chat_template.jinja",
                                           "chat_template.json"};

// The config of the text model that a multimodal config holds.
Json text_config(const Json& config, const std::string& model_type) {
  Json text = config;
  if (config.contains("text_config")) text = config["text_config"];
  text.erase("vision_config");
  for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id", "tie_word_embeddings"})
    if (config.contains(key) && (!text.contains(key) || std::string(key).starts_with("tie_")))
      text[key] = config[key];  // as HfConfig reads it
  text["model_type"] = model_type;
  for (const char* rope : {"rope_parameters", "rope_scaling"})  // of images' axes
    if (text.contains(rope) && text[rope].is_object())
      for (const char* key : {"mrope_section", "mrope_interleaved"}) text[rope].erase(key);
  return text;
}

// The class that reads what is written, and for a number a token that it has one label.
void set_head(Json& config, const Family& family, HeadKind head, bool unwrapped) {
  const auto architecture = config.find("architectures");
  const bool was_scalar =
      architecture != config.end() && architecture->is_array() && !architecture->empty() &&
      (*architecture)[0].is_string() &&
      (*architecture)[0].get<std::string>().ends_with("ForSequenceClassification");
  if (head == HeadKind::kScalar) {
    if (family.sequence_classification) config["architectures"] = {family.sequence_classification};
    config.erase("num_labels");
    config["id2label"] = {{"0", "LABEL_0"}};
    config["label2id"] = {{"LABEL_0", 0}};
    return;
  }
  if ((was_scalar || unwrapped) && family.causal_lm) config["architectures"] = {family.causal_lm};
  if (was_scalar)
    for (const char* key : {"num_labels", "id2label", "label2id"}) config.erase(key);
}

// transformers' classifiers score the last token that is no padding, so padding must be a token
// that no text ends with: the config's or the tokenizer's own where it is none of these, else
// another special token. Null where there is none: one text at a time is then scored at its last
// token.
void set_padding(Json& config, const HfConfig& source, const std::string& directory) {
  std::vector<int32_t> candidates, ends = eos_ids(directory, source);
  const auto add = [&](const Json& id) {
    if (id.is_number_integer() && id.get<int64_t>() >= 0) candidates.push_back(id.get<int32_t>());
  };
  if (config.contains("pad_token_id")) add(config["pad_token_id"]);
  if (const auto tokenizer = Tokenizer::load_directory(directory)) {
    if (const auto end = end_token(directory, *tokenizer)) ends.push_back(*end);
    const Json named = special_tokens(directory);
    for (const char* name : {"pad_token", "unk_token", "bos_token"})
      if (named.contains(name) && named[name].is_string())
        if (const auto id = tokenizer->id_of(named[name].get<std::string>())) add(*id);
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
      if (tokenizer->is_special(id)) candidates.push_back(id);
  }
  config["pad_token_id"] = nullptr;
  for (const int32_t id : candidates)
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) {
      config["pad_token_id"] = id;
      return;
    }
}

// Written anew rather than copied: a read-only original must not make a read-only copy.
void copy_file(const std::string& from, const std::string& to) {
  if (is_file(from)) write_file_atomic(to, read_file(from, kMostFileBytes));
}

// Templates beside the main one, by name: additional_chat_templates/NAME.jinja.
void copy_additional_templates(const std::string& from, const std::string& to) {
  const char* const folder = "/additional_chat_templates";
  std::error_code ignored;
  if (!fs::is_directory(from + folder, ignored)) return;
  fs::create_directories(to + folder);
  int count = 0;
  for (const auto& entry : fs::directory_iterator(from + folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".jinja")) continue;
    check<DataError>(++count <= kMostTemplates, from, folder, ": more than ", kMostTemplates,
                     " templates");
    copy_file(entry.path().string(), to + folder + "/" + name);
  }
}

}  // namespace

namespace {

NamedTensors own_tensors(nn::Module& module, at::ScalarType dtype) {
  NamedTensors tensors;
  module.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (is_of_adapter(name)) return;
    tensors.emplace_back(name, whole_view(parameter, dtype));
  });
  return tensors;
}

}  // namespace

void save_weights(Model& model, const std::string& directory, at::ScalarType dtype, bool one_file) {
  if (!directory.empty()) fs::create_directories(directory);
  const at::NoGradGuard no_grad;
  NamedTensors tensors = own_tensors(model, dtype);
  NamedTensors of_tower = take_tower_tensors(tensors, model);
  restore_names(model.body(), tensors);
  if (!model.whole.empty()) add_other_parts(tensors, model, std::move(of_tower), dtype);
  if (one_file)
    write_safetensors_model(directory, tensors, SIZE_MAX);
  else
    write_safetensors_model(directory, tensors);
}

void save_parameters(nn::Module& module, const std::string& directory, at::ScalarType dtype) {
  if (!directory.empty()) fs::create_directories(directory);
  const at::NoGradGuard no_grad;
  write_safetensors_model(directory, own_tensors(module, dtype));
}

int64_t tokenizer_file_bytes(const std::string& directory) {
  int64_t bytes = 0;
  for (const char* file : kTokenizerFiles) {
    const std::string path = directory + "/" + file;
    std::error_code none;
    const auto size = fs::file_size(path, none);
    if (!none)
      bytes += static_cast<int64_t>(size);
    else if (is_file(path))  // made
      bytes += static_cast<int64_t>(read_file(path, kMostFileBytes).size());
  }
  return bytes;
}

void copy_tokenizer_files(const std::string& from, const std::string& directory) {
  for (const char* file : kTokenizerFiles) copy_file(from + "/" + file, directory + "/" + file);
  copy_additional_templates(from, directory);
}

Json written_config(const std::string& path, bool untied) {
  const HfConfig source = HfConfig::load(path);
  const bool directory = fs::is_directory(path) || stands_for_directory(path);
  Json config = read_json_file(directory ? path + "/config.json" : path, size_t{64} << 20);
  if (source.multimodal()) config = text_config(config, source.model_type());
  config.erase("quantization_config");  // the weights that are written are not quantized
  for (const char* key : kTiedKeys) {
    const auto found = source.json().find(key);  // false, too, where the head is another one
    const bool given = found != source.json().end();
    if ((given && *found == false) || (untied && (given || key == kTiedKeys[0])))
      config[key] = false;
  }
  return config;
}

void write_model_files(const ModelFiles& files, const std::string& directory, at::ScalarType dtype,
                       HeadKind head, bool untied) {
  fs::create_directories(directory);
  const HfConfig source = HfConfig::load(files.config);
  Json config =
      files.whole ? whole_config(files.config, untied) : written_config(files.config, untied);
  if (!files.whole) set_head(config, family_of(source), head, source.multimodal());
  if (head == HeadKind::kScalar && !files.others.empty()) set_padding(config, source, files.others);
  const char* name = dtype == at::kBFloat16 ? "bfloat16"
                     : dtype == at::kHalf   ? "float16"
                                            : "float32";
  for (const char* key : {"torch_dtype", "dtype"})
    for (const char* section : {"text_config", "vision_config", "audio_config"})
      if (files.whole && config.contains(section) && config[section].is_object() &&
          config[section].contains(key))
        config[section][key] = name;
  if (config.contains("torch_dtype"))
    config["torch_dtype"] = name;
  else
    config["dtype"] = name;
  write_file_atomic(directory + "/config.json", config.dump(2) + "\n");
  if (files.others.empty()) return;
  copy_file(files.others + "/generation_config.json", directory + "/generation_config.json");
  copy_tokenizer_files(files.others, directory);
  if (files.whole) copy_processor_files(files.others, directory);
}

}  // namespace temper::models
