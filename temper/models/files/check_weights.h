// Whether a directory's weight files are those of its config.json.
#pragma once

#include <cstdint>
#include <string>

#include "temper/io/safetensors.h"
#include "temper/models/model.h"

namespace temper::models {

// What a directory's weight files hold.
struct StoredWeights {
  int64_t tensors = 0, bytes = 0, parameters = 0;
  bool float32 = true;  // every tensor: such a file's values are used where they are mapped
};
// Compares the files with a model of the directory's config.json: throws what load_model would, or,
// with `optional` "score.weight", load_scalar_model; and ConfigError that names tensors whose
// values are not finite. Every value is read, which takes as long as reading the files.
StoredWeights check_weights(const std::string& directory, nn::Module& model,
                            const std::string& optional = "");

// Throws ConfigError that begins with `key` where so many ranks that compute the same rows cannot
// divide the model of the directory, kept and divided as `storage` says. Only headers are read.
void check_divisible(const std::string& directory, const Storage& storage, int ranks,
                     const std::string& key);

}  // namespace temper::models
