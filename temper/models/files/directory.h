// What a directory holds, told without loading a model.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "temper/ops/formats.h"

namespace temper::models {

struct Storage;

// The directory of the model that a config key names, resolved as resolve_model_path does. Throws
// ConfigError that begins with `where`, the key, unless it is the directory of a model or adapter.
std::string named_model(const std::string& path, const std::string& where,
                        bool may_be_adapter = false);
// "; it is an adapter: ..." of a directory without config.json: what it is, and what to give in its
// place. Empty: nobody knows.
std::string no_model_hint(const std::string& directory);
// The same of a path that is no adapter's directory.
std::string no_adapter_hint(const std::string& path);

// The model that a PEFT adapter's directory names as its base, as it is written there; none: no
// adapter_config.json, or it names none. Throws DataError where the file is not JSON.
std::optional<std::string> adapter_base(const std::string& directory);
// The directory of that model on this machine; a hub id is looked up as resolve_model_path does, in
// the `revision` that is written beside it. None as above. Throws ConfigError, DataError.
std::optional<std::string> find_adapter_base(const std::string& directory);

// How the base's weights were kept when an adapter was trained: the metadata `base_dtype` and
// `base_storage` of its adapter_model.safetensors, as model.dtype and model.storage name them.
struct BaseFormat {
  std::string dtype;    // float32 or bfloat16
  std::string storage;  // of the blocks' linear layers: a StorageName
  // Whether the weights were other numbers than the files'.
  bool is_rounded() const;
};
// None where the file does not say. Throws DataError where it is no safetensors file.
std::optional<BaseFormat> adapter_base_format(const std::string& directory);
// The storage in which such weights are loaded; an empty storage or dtype means float32 or the
// dtype's own.
Storage storage_of(const BaseFormat& format);

// The formats of matrices by their names as parameters of the model, where weight files hold them
// quantized and their codes can be kept.
std::map<std::string, ops::WeightFormat> held_matrices(const std::string& directory);
// The formats in which weight files hold matrices whose codes can be kept as they lie. Throws what
// load_model would for files that cannot be read.
std::set<ops::WeightFormat> held_formats(const std::string& directory);

// Whether the model has a scalar head (score.weight), its own or that of the adapter on it; "": no
// adapter.
bool has_scalar_head(const std::string& directory, const std::string& adapter = "");

}  // namespace temper::models
