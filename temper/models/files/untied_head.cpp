#include "temper/models/files/untied_head.h"

#include <ATen/ATen.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/io/weight_files.h"
#include "temper/models/decoder.h"
#include "temper/models/files/tensors.h"

namespace temper::models {
namespace {

// The one tensor whose name ends so; null: there is none, or several.
const TensorView* only(const TensorMap& tensors, const char* end) {
  const TensorView* found = nullptr;
  for (const auto& [name, view] : tensors) {
    if (!name.ends_with(end)) continue;
    if (found) return nullptr;
    found = &view;
  }
  return found;
}

bool is_plain(const TensorView& view) {
  return !view.make && view.shape.size() == 2 &&
         (view.dtype == DType::kFloat32 || view.dtype == DType::kBFloat16 ||
          view.dtype == DType::kFloat16);
}

bool differ(const TensorView& a, const TensorView& b) {
  if (a.shape != b.shape) return true;
  if (a.dtype == b.dtype) return std::memcmp(a.data, b.data, a.num_bytes) != 0;
  return !at::equal(to_tensor(a, at::kFloat), to_tensor(b, at::kFloat));
}

bool ties(const HfConfig& config) {
  return families().contains(config.model_type()) &&
         family_of(config).config(config).tie_word_embeddings;
}

}  // namespace

std::string untied_head(const HfConfig& config, const std::string& directory) {
  try {
    if (!ties(config)) return "";
    const TensorMap tensors = read_weights(directory);
    const TensorView *head = only(tensors, "lm_head.weight"),
                     *embeddings = only(tensors, "embed_tokens.weight");
    if (!head || !embeddings || !is_plain(*head) || !is_plain(*embeddings)) return "";
    if (!differ(*head, *embeddings)) return "";
  } catch (const Error&) {
    return "";
  }
  return str(config.where(),
             ": `tie_word_embeddings` is true, by default where the key is missing, and the "
             "weights' lm_head.weight differs from the embeddings: the model keeps its own head; "
             "set `tie_word_embeddings: false` to confirm this");
}

std::string untied_head(const std::string& directory) {
  // As the file says it, which HfConfig::load no longer does.
  const std::string file = directory + "/config.json";
  return untied_head(HfConfig::parse(read_json_file(file, size_t{64} << 20), file), directory);
}

}  // namespace temper::models
