#include "temper/models/gguf/gguf_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/gguf.h"
#include "temper/io/gguf_vocabulary.h"
#include "temper/models/files/new_tokens.h"
#include "temper/models/gguf/gguf_config.h"

namespace temper::models {
namespace {

constexpr const char *kConfig = "config.json", *kGeneration = "generation_config.json",
                     *kTokenizer = "tokenizer.json", *kTokenizerConfig = "tokenizer_config.json",
                     *kTemplate = "chat_template.jinja";
// The files of a directory whose tokenizer is used instead.
constexpr const char* kTokenizerFilesOf[] = {
    kTokenizer,           kTokenizerConfig,          kTemplate,
    "chat_template.json", "special_tokens_map.json", "added_tokens.json",
    "tokenizer.model"};
constexpr size_t kMostTokenizerBytes = size_t{1} << 30;

bool is_of_tokenizer(const std::string& name) {
  return std::find(std::begin(kTokenizerFilesOf), std::end(kTokenizerFilesOf), name) !=
         std::end(kTokenizerFilesOf);
}

// What tells a file from the one that it was before.
std::string stamp_of(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return "";
  return str(about.st_dev, " ", about.st_ino, " ", about.st_size, " ", about.st_mtim.tv_sec, ".",
             about.st_mtim.tv_nsec);
}

// Which files a GGUF file stands for, and those of them that are small.
struct FilesOfGguf {
  std::string stamp;
  bool tokenizer = false;
  std::map<std::string, std::string, std::less<>> made;
};

// Bytes of names that are no UTF-8 are replaced.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

FilesOfGguf read_files(const std::string& path) {
  FilesOfGguf files{.stamp = stamp_of(path)};
  const GgufFile file = read_gguf_model(path);
  files.tokenizer = has_gguf_tokenizer(file);
  files.made[kConfig] = text_of(gguf_config(file, path));
  Json generation = Json::object();
  if (const std::vector<int32_t> ends = gguf_end_ids(file); !ends.empty())
    generation["eos_token_id"] = ends;
  if (const auto bos = gguf_token_id(file, "bos")) generation["bos_token_id"] = *bos;
  if (const auto pad = gguf_token_id(file, "padding")) generation["pad_token_id"] = *pad;
  if (!generation.empty()) files.made[kGeneration] = text_of(generation);
  if (!files.tokenizer) return files;
  files.made[kTokenizerConfig] = text_of(gguf_tokenizer_config(file, path));
  if (const auto text = gguf_chat_template(file)) files.made[kTemplate] = *text;
  return files;
}

class GgufFolders {
 public:
  static GgufFolders& instance() {
    static GgufFolders folders;
    return folders;
  }

  bool has(const std::string& path, const std::string& name) {
    if (const auto own = tokenizer_of(path); own && is_of_tokenizer(name))
      return is_file(*own + "/" + name);
    const bool any = name == kConfig || name == kGeneration || is_of_tokenizer(name);
    if (!any) return false;
    if (name == kConfig) return true;  // or an error says why not
    const std::lock_guard lock(mutex_);
    const FilesOfGguf& files = files_of(path);
    return name == kTokenizer ? files.tokenizer : files.made.contains(name);
  }

  std::string make(const std::string& path, const std::string& name) {
    if (const auto own = tokenizer_of(path); own && is_of_tokenizer(name))
      return read_file(*own + "/" + name, kMostTokenizerBytes);
    if (name == kTokenizer) return gguf_tokenizer_json(read_gguf(path), path);
    const std::lock_guard lock(mutex_);
    return files_of(path).made.at(name);
  }

  void use(const std::string& path, const std::string& directory) {
    const std::lock_guard lock(mutex_);
    tokenizers_[stamp_of(path)] = directory;
  }

 private:
  std::optional<std::string> tokenizer_of(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (tokenizers_.empty()) return {};
    const auto found = tokenizers_.find(stamp_of(path));
    return found == tokenizers_.end() ? std::nullopt : std::optional(found->second);
  }
  const FilesOfGguf& files_of(const std::string& path) {
    FilesOfGguf& files = files_[path];
    if (files.stamp.empty() || files.stamp != stamp_of(path)) files = read_files(path);
    return files;
  }

  std::mutex mutex_;
  std::map<std::string, FilesOfGguf> files_;
  std::map<std::string, std::string> tokenizers_;  // directories, by stamps
};

// Files of a model with new tokens are made, too, whether it is a directory or a GGUF file.
const bool kSet = [] {
  set_made_files({.stands =
                      [](const std::string& path) {
                        return is_gguf_file(path) || !new_tokens_of(path).empty();
                      },
                  .has =
                      [](const std::string& path, const std::string& name) {
                        return file_with_new_tokens(path, name) ||
                               (is_gguf_file(path) && GgufFolders::instance().has(path, name));
                      },
                  .make =
                      [](const std::string& path, const std::string& name) {
                        if (auto text = file_with_new_tokens(path, name)) return *std::move(text);
                        return GgufFolders::instance().make(path, name);
                      }});
  return true;
}();

}  // namespace

void use_tokenizer(const std::string& model, const std::string& directory,
                   const std::string& where) {
  check<ConfigError>(is_gguf_file(model), where, ": ", model,
                     " is a directory, whose own tokenizer is read; expected a .gguf file");
  check<ConfigError>(
      is_file(directory + "/tokenizer.json") || is_file(directory + "/tokenizer.model"), where,
      ": ", directory, ": found no tokenizer.json, nor a tokenizer.model");
  GgufFolders::instance().use(model, directory);
}

}  // namespace temper::models
