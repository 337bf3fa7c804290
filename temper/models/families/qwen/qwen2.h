// What Qwen2 and Qwen3 have in common.
#pragma once

#include "temper/models/decoder.h"

namespace temper::models {

// Layers from max_window_layers on attend to a window where use_sliding_window says so.
std::vector<int64_t> qwen_windows(const HfConfig& config, int64_t layers);

}  // namespace temper::models
