// Sampling options that a model directory's generation_config.json suggests.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "temper/generate/sampling/sampler.h"

namespace temper::generate {

// Sets temperature, top_p, top_k, min_p and repetition_penalty to the values of the directory's
// generation_config.json where `takes` is true of the name. Returns what was set, as in
// "temperature 0.6, top_k 20"; empty where there is no such file. Throws DataError naming file and
// key.
std::string take_suggested(const std::string& model_dir, SamplingOptions& options,
                           const std::function<bool(std::string_view name)>& takes);

// "temperature 1, top_p 1, top_k 0, min_p 0, repetition_penalty 1"
std::string described(const SamplingOptions& options);

}  // namespace temper::generate
