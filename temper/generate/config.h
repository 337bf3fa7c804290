// The config section `rollout`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/generate/engine.h"
#include "temper/generate/sampling/option_table.h"

namespace temper::generate {

// Its own options are those of option_table.h that a config holds as they are; options() adds what
// a config has in another form.
struct RolloutSection : GenerationOptions {
  RolloutSection() { max_new_tokens = 256; }
  std::map<std::string, std::string> bias_texts;  // logit_bias
  std::vector<int64_t> stop_ids;                  // stop_token_ids
  GrammarChoice form;                             // json_schema, regex, grammar
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
