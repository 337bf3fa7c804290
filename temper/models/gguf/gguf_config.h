// The configuration of a GGUF file's model as the config.json that Hugging Face's has: the inverse
// of gguf_form.h, by which it is checked.
#pragma once

#include "temper/base/json.h"
#include "temper/models/gguf/gguf_source.h"

namespace temper::models {

// config.json. Every key of the architecture is read or known to change no number. Throws
// ConfigError that names the key, or the architecture.
Json gguf_config(const GgufFile& file, const std::string& where);

// Parts of it, and what families' GgufArchitecture::read share. llama3: rope_freqs are the factors
// of Llama 3's scaling.
void read_gguf_rope(const GgufSource& source, bool llama3, Json& config);
// The numbers of experts and of those of a token, and their width (mostly as wide as an MLP).
void read_gguf_experts(const GgufSource& source, const char* count_key, const char* width_key,
                       Json& config);
// The keys of a router with sigmoids.
void read_gguf_sigmoids(const GgufSource& source, Json& config);
// layer_types, of `windowed` by layer.
Json gguf_layer_types(const std::vector<bool>& windowed);
// Which layers have a window: those of sliding_window_pattern, else all but each `period`-th.
std::vector<bool> gguf_windows(const GgufSource& source, int64_t layers, int64_t period);

}  // namespace temper::models
