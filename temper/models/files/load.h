// Models from Hugging Face directories.
#pragma once

#include <cstdint>
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

// A directory's tensors as the model has them, and the bytes of its weight files.
struct StoredWeights {
  int64_t tensors = 0, bytes = 0;
};
// Compares the files with a model of the directory's config.json: throws what load_model would, or,
// with `optional` "score.weight", load_scalar_model; and ConfigError that names tensors whose
// values are not finite. Every value is read, which takes as long as reading the files.
StoredWeights check_weights(const std::string& directory, nn::Module& model,
                            const std::string& optional = "");

// Throws ConfigError that begins with `key` where so many ranks that compute the same rows cannot
// divide the model of the directory, kept and divided as `storage` says. may_be_whole: by expert,
// one without experts. Only headers are read.
void check_divisible(const std::string& directory, const Storage& storage, int ranks,
                     const std::string& key, bool may_be_whole = false);

}  // namespace temper::models
