// The config section `rollout`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/generate/engine.h"
#include "temper/generate/request.h"

namespace temper::generate {

struct RolloutSection {
  int64_t max_new_tokens = 256;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int64_t no_repeat_ngram = 0;
  std::map<std::string, std::string> logit_bias;
  int64_t min_new_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  std::optional<std::string> json_schema, regex, grammar;
  bool ignore_eos = false;
  std::optional<int64_t> cache_bytes;
  ops::CacheDtype cache_dtype = ops::CacheDtype::kFloat32;
  std::string speculative = "auto";
  void fields(Fields& f);
  // Throws ConfigError for texts that options() and engine_options() cannot read.
  void validate() const;
  // What the section says of a request. Throws ConfigError.
  GenerationOptions options(int64_t seed) const;
  // What it says of an engine. Throws ConfigError.
  EngineOptions engine_options() const;
};

}  // namespace temper::generate
