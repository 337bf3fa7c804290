#include "temper/models/gguf/gguf.h"

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/io/gguf_tokenizer.h"
#include "temper/models/files/load.h"
#include "temper/models/files/save.h"
#include "temper/models/vision/load.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

constexpr uint32_t kFloat32File = 0, kFloat16File = 1, kBFloat16File = 32;  // general.file_type

std::optional<int32_t> id_of(const HfConfig& config, const char* key) {
  const auto found = config.json().find(key);
  if (found == config.json().end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int32_t>();
}

// What the model is called: as its directory, or as its own file says.
std::string name_of(const std::string& directory) {
  if (is_gguf_file(directory)) {
    const GgufFile file = read_gguf(directory);
    if (const auto* name = file.get<std::string>("general.name")) return *name;
  }
  std::error_code ignored;
  return fs::weakly_canonical(directory, ignored).filename().string();
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
                       const std::string& adapter, bool untied) {
  const HfConfig config =
      untied ? HfConfig::parse(written_config(directory, true), directory + "/config.json")
             : HfConfig::load(directory);
  GgufHeader header{.form = gguf_form(config)};
  header.keys = {{"general.architecture", header.form.architecture},
                 {"general.type", std::string("model")},
                 {"general.name", name_of(directory)},
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
                                            .eos = eos_ids(directory, config),
                                            .character_model = header.form.character_model},
                                           adapter);
  add(tokenizer.keys);
  header.notes = header.form.notes;
  if (vision_family_of(directory))
    header.notes.push_back(
        "the vision tower is left out: the file holds the language model alone, and llama.cpp "
        "reads no images with it (no mmproj file is written)");
  header.notes.insert(header.notes.end(), tokenizer.notes.begin(), tokenizer.notes.end());
  return header;
}

void save_gguf(CausalLM& model, const GgufHeader& header, const std::string& path,
               at::ScalarType dtype, const ValueOf& value) {
  const auto tensors = gguf_tensors(model, header.form, dtype, value);
  write_gguf(path, header.keys, tensors);
  compare(read_gguf(path), header, path, tensors);
}

}  // namespace temper::models
