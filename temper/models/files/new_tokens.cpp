#include "temper/models/files/new_tokens.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/io/safetensors.h"
#include "temper/models/family.h"
#include "temper/models/files/tensors.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/text/tokenizer/tokenizer_file.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

constexpr const char *kTokenizerFile = "tokenizer.json", *kConfigFile = "config.json";
constexpr size_t kMostJsonBytes = size_t{1} << 30;  // of a tokenizer.json

// What a model's files become.
struct Grown {
  std::vector<std::string> texts;
  int64_t first = 0;     // the first new token's id
  int64_t rows = 0;      // of the files' tables
  int64_t new_rows = 0;  // of those that are made of them
  std::string tokenizer, config;
};

class GrownModels {
 public:
  static GrownModels& instance() {
    static GrownModels models;
    return models;
  }
  std::shared_ptr<const Grown> find(const std::string& directory) {
    const std::lock_guard lock(mutex_);
    if (models_.empty()) return nullptr;
    const auto found = models_.find(key(directory));
    return found == models_.end() ? nullptr : found->second;
  }
  void set(const std::string& directory, std::shared_ptr<const Grown> grown) {
    const std::lock_guard lock(mutex_);
    if (grown)
      models_[key(directory)] = std::move(grown);
    else
      models_.erase(key(directory));
  }

 private:
  static std::string key(const std::string& directory) {
    std::error_code none;
    std::string path = fs::absolute(directory, none).lexically_normal().string();
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return path;
  }
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Grown>> models_;
};

// The tokenizer's file with the tokens, and the first one's id.
void add_to_tokenizer(Grown& grown, const std::string& directory, const std::string& where) {
  const std::string file = directory + "/" + kTokenizerFile;
  check<ConfigError>(is_file(file), where, ": ", directory,
                     " has no tokenizer.json to add tokens to");
  const std::string text = read_file(file, kMostJsonBytes);
  const auto tokenizer = Tokenizer::parse(text, file);
  std::set<std::string> seen;
  for (const std::string& token : grown.texts) {
    check<ConfigError>(!token.empty(), where, ": found an empty text, expected that of a token");
    check<ConfigError>(seen.insert(token).second, where, ": `", token, "` is named twice");
    const auto id = tokenizer->id_of(token);
    check<ConfigError>(!id, where, ": `", token, "` is a token of ", directory, " already, id ",
                       id.value_or(0), "; leave it out (adapter.train_tokens takes it as well)");
  }
  grown.first = tokenizer->vocab_size();
  grown.tokenizer = with_added_tokens(text, grown.texts, static_cast<int32_t>(grown.first));
  const auto added = Tokenizer::parse(grown.tokenizer, file);
  for (size_t i = 0; i < grown.texts.size(); ++i) {
    const int64_t id = grown.first + static_cast<int64_t>(i);
    check<ConfigError>(added->id_of(grown.texts[i]) == id, where, ": ", file, ": `", grown.texts[i],
                       "` cannot have the id ", id,
                       " behind the last one: the ids before it have gaps");
  }
}

void add_to_config(Grown& grown, const std::string& directory) {
  grown.rows = vocabulary_of(directory);
  grown.new_rows = std::max(grown.rows, grown.first + std::ssize(grown.texts));
  Json config = read_json_file(directory + "/" + kConfigFile, size_t{64} << 20);
  const bool nested = config.contains("text_config") && config["text_config"].is_object();
  if (nested) config["text_config"]["vocab_size"] = grown.new_rows;
  if (!nested || config.contains("vocab_size")) config["vocab_size"] = grown.new_rows;
  grown.config = config.dump(2) + "\n";
}

// `old` [rows, width] with the rows of new tokens.
at::Tensor with_new_rows(const at::Tensor& old, const Grown& grown) {
  const int64_t kept = std::min(grown.rows, grown.first), width = old.size(1);
  std::vector<double> sum(static_cast<size_t>(width));
  const float* values = old.const_data_ptr<float>();
  for (int64_t r = 0; r < kept; ++r)
    for (int64_t i = 0; i < width; ++i) sum[static_cast<size_t>(i)] += values[r * width + i];
  at::Tensor mean = at::empty({width}, at::kFloat);
  for (int64_t i = 0; i < width; ++i)
    mean.mutable_data_ptr<float>()[i] =
        static_cast<float>(sum[static_cast<size_t>(i)] / static_cast<double>(kept));
  at::Tensor all = at::empty({grown.new_rows, width}, at::kFloat);
  all.narrow(0, 0, grown.rows).copy_(old);
  all.narrow(0, kept, grown.first + std::ssize(grown.texts) - kept).copy_(mean);
  return all;
}

}  // namespace

void use_new_tokens(const std::string& directory, const std::vector<std::string>& texts,
                    const std::string& where) {
  GrownModels& models = GrownModels::instance();
  const auto before = models.find(directory);
  if (before ? before->texts == texts : texts.empty()) return;
  models.set(directory, nullptr);
  if (texts.empty()) return;
  auto grown = std::make_shared<Grown>();
  grown->texts = texts;
  add_to_tokenizer(*grown, directory, where);
  add_to_config(*grown, directory);
  models.set(directory, std::move(grown));
}

std::vector<std::string> new_tokens_of(const std::string& directory) {
  const auto grown = GrownModels::instance().find(directory);
  return grown ? grown->texts : std::vector<std::string>();
}

namespace {

SafetensorsMetadata about_adapter(const std::string& adapter) {
  const std::string path = adapter + "/adapter_model.safetensors";
  std::error_code none;
  return fs::exists(path, none) ? read_safetensors_metadata(path) : SafetensorsMetadata();
}

}  // namespace

void check_new_tokens(const std::string& adapter, int64_t rows,
                      const std::vector<std::string>& of_model) {
  const SafetensorsMetadata about = about_adapter(adapter);
  const auto found = about.find(kNewVocabulary);
  check<ConfigError>(found == about.end() || found->second == std::to_string(rows), adapter,
                     ": was trained with new tokens (model.new_tokens) on a vocabulary of ",
                     found == about.end() ? "" : found->second, ", and this model has ", rows,
                     "; --adapter and adapter.path give its base model these tokens");
  if (found == about.end() || of_model.empty()) return;
  const std::string other = first_difference_of_tokens(adapter_new_tokens(adapter), of_model);
  check<ConfigError>(other.empty(), adapter,
                     ": was trained with other new tokens (model.new_tokens): ", other,
                     " as in this model");
}

std::string first_difference_of_tokens(const std::vector<std::string>& found,
                                       const std::vector<std::string>& expected) {
  const auto said = [](const std::vector<std::string>& tokens, size_t i) {
    return i < tokens.size() ? str("`", tokens[i], "`") : std::string("none");
  };
  for (size_t i = 0; i < std::max(found.size(), expected.size()); ++i)
    if (said(found, i) != said(expected, i))
      return str("token ", i + 1, " is ", said(found, i), ", expected ", said(expected, i));
  return {};
}

std::vector<std::string> adapter_new_tokens(const std::string& adapter) {
  const SafetensorsMetadata about = about_adapter(adapter);
  const auto found = about.find(kNewTokens);
  if (found == about.end()) return {};
  const std::string where = adapter + "/adapter_model.safetensors: metadata new_tokens";
  const Json list = parse_json(found->second, where);
  std::vector<std::string> texts;
  check<DataError>(list.is_array(), where, ": expected a list of texts");
  for (const Json& text : list) {
    check<DataError>(text.is_string(), where, ": expected a list of texts");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

void use_tokens_of_adapters(const std::string& model, const std::vector<std::string>& adapters) {
  if (adapters.empty()) return;
  const std::vector<std::string> tokens = adapter_new_tokens(adapters[0]);
  for (const std::string& other : adapters)
    check<ConfigError>(adapter_new_tokens(other) == tokens, "--adapter: ", adapters[0], " and ",
                       other,
                       " were trained with different new tokens (model.new_tokens): the "
                       "model has one vocabulary for both; give one of them alone");
  if (!tokens.empty()) use_new_tokens(model, tokens, "--adapter " + adapters[0]);
}

std::optional<std::string> file_with_new_tokens(const std::string& directory,
                                                const std::string& name) {
  if (name != kTokenizerFile && name != kConfigFile) return {};
  const auto grown = GrownModels::instance().find(directory);
  if (!grown) return {};
  return name == kConfigFile ? grown->config : grown->tokenizer;
}

void add_new_rows(CheckpointTensors& checkpoint) {
  const auto grown = GrownModels::instance().find(checkpoint.directory);
  if (!grown) return;
  for (auto& [name, view] : checkpoint.tensors) {
    check<ConfigError>(!name.ends_with("embed_tokens_per_layer.weight"), checkpoint.directory,
                       ": model.new_tokens: the model has embeddings of each layer (", name,
                       "), which get no new tokens");
    if (!name.ends_with("embed_tokens.weight") && !name.ends_with("lm_head.weight")) continue;
    if (view.shape.size() != 2 || view.shape[0] != grown->rows) continue;  // a wrong shape
    view = view_of({grown->new_rows, view.shape[1]}, at::kFloat, [old = view, grown] {
      const at::Tensor values = to_tensor(old.make ? old.make() : old, at::kFloat);
      const at::Tensor all = with_new_rows(values.contiguous(), *grown);
      if (!old.make) give_back_pages(old);
      return all;
    });
  }
}

}  // namespace temper::models
