// config.json made from the keys of a GGUF file: the inverse of gguf_form.h, which checks it.
#pragma once

#include "temper/base/json.h"
#include "temper/models/gguf/gguf_source.h"

namespace temper::models {

// Throws ConfigError that names the architecture, or a key that is neither read nor known to change
// no result.
Json gguf_config(const GgufFile& file, const std::string& where);

// Parts of it, and functions that families' GgufArchitecture::read share. llama3: rope_freqs are
// the factors of Llama 3's scaling.
void read_gguf_rope(const GgufSource& source, bool llama3, Json& config);
// The number of experts, the number that a token uses, and their width (default: that of an MLP).
void read_gguf_experts(const GgufSource& source, const char* count_key, const char* width_key,
                       Json& config);
// The keys of a router with sigmoids (DeepSeek-V3).
void read_gguf_sigmoids(const GgufSource& source, Json& config);
// layer_types; `windowed`: which layers have a window.
Json gguf_layer_types(const std::vector<bool>& windowed);
// Which layers have a window: those of sliding_window_pattern; without it all but every
// `period`-th.
std::vector<bool> gguf_windows(const GgufSource& source, int64_t layers, int64_t period);

}  // namespace temper::models
