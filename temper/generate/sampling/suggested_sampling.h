// Sampling options that a model directory's generation_config.json suggests.
#pragma once

#include <functional>
#include <string>

#include "temper/generate/sampling/option_table.h"

namespace temper::generate {

// Sets the options that the directory's generation_config.json has, where `takes` is empty or true
// of them. Returns what was set, as in "temperature 0.6, top_k 20"; empty where there is no such
// file. Throws DataError naming file and key.
std::string take_suggested(const std::string& model_dir, SamplingOptions& options,
                           const std::function<bool(const SamplingOption&)>& takes = {});

// "temperature 1, top_k 0, top_p 1, min_p 0, repetition_penalty 1"
std::string described(const SamplingOptions& options);

}  // namespace temper::generate
