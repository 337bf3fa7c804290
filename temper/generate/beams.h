// Beam search of many prompts through the cache of keys and values: a prompt's beams share the
// pages of what they begin with.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "temper/generate/beam_search.h"
#include "temper/generate/engine.h"

namespace temper::generate {

// The num_samples best completions of each prompt, best first, `done` in order of (index, sample);
// Completion::score is set. Options' rules and grammar change the scores, never the recorded
// log-probabilities, which are those of sampling. on_token is called once a step of each prompt.
// Throws as Engine::submit, and ConfigError for filters and more samples than beams.
void beam_search(models::CausalLM& model, const std::vector<std::vector<int32_t>>& prompts,
                 int64_t num_samples, const GenerationOptions& options, const BeamOptions& beams,
                 const std::function<void(Completion)>& done,
                 std::shared_ptr<const Tokenizer> tokenizer = nullptr,
                 const std::function<void(const Completion&)>& on_token = {},
                 const EngineOptions& engine_options = {}, const std::vector<int>& adapters = {},
                 const std::vector<std::vector<ExternalRows>>& rows = {});

}  // namespace temper::generate
