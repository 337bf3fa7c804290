// Models from Hugging Face directories.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/models/files/save.h"
#include "temper/models/files/tensors.h"
#include "temper/models/init.h"
#include "temper/models/model.h"

namespace temper::models {

// The model of a directory, its weights kept as `storage` says; what is not float32 can be read but
// not trained. What the file holds in the dtype asked for stays mapped from it (CausalLM::files),
// other tensors are converted one by one, and their pages of the file given back. Tensors that are
// missing, left over or of a wrong shape are all named in one ConfigError. cache: weights that are
// quantized are kept for the next start (weight_cache.h). Throws ConfigError or DataError.
std::unique_ptr<CausalLM> load_model(const std::string& directory, const Storage& storage = {},
                                     bool cache = true);

// A reward model or critic: of a sequence classifier's directory with one label, or the body of a
// language model's with a fresh head, whose weight is drawn from `seed` as transformers draws it.
std::unique_ptr<ScalarModel> load_scalar_model(const std::string& directory,
                                               const Storage& storage = {}, uint64_t seed = 0);

// The directory that a model's path means: a directory (or file) as it is; a hub's id, `org/name`,
// the snapshot of its `main` in the local Hugging Face cache ($HF_HUB_CACHE, $HF_HOME/hub or
// ~/.cache/huggingface/hub), or the one of the commit `revision`. Nothing is downloaded. Throws
// ConfigError that says where it looked.
std::string resolve_model_path(const std::string& path, const std::string& revision = "");

// The name by which others find the model of a directory, the inverse of resolve_model_path: for a
// snapshot in a Hugging Face cache, wherever that lies, the hub id, and the commit unless `main`
// names it; otherwise the path as it is.
struct PublicName {
  std::string name, revision;  // revision "": that of main, or `name` is a path
};
PublicName public_name(const std::string& path);

// eos ids of config.json and generation_config.json.
std::vector<int32_t> eos_ids(const std::string& directory, const HfConfig& config);

}  // namespace temper::models
