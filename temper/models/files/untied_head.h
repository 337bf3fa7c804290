// Checkpoints with a head of their own whose config says that it is the embeddings'.
#pragma once

#include <string>

#include "temper/models/files/hf_config.h"

namespace temper::models {

// Config keys that tie the head to the embeddings, the general one first (the other is LFM2's).
inline constexpr const char* kTiedKeys[] = {"tie_word_embeddings", "tie_embedding"};

// Whether the directory's weights hold a head that differs from the embeddings, although its config
// ties the two: as transformers, such a model keeps its head (HfConfig::load then gives a config
// that does not tie). What to tell the user; "": there is none. Weights that cannot be read are
// left to who loads them.
std::string untied_head(const HfConfig& config, const std::string& directory);
std::string untied_head(const std::string& directory);

}  // namespace temper::models
