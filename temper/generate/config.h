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

// The options of option_table.h as users write them, in a config or as flags.
struct WrittenOptions : GenerationOptions {
  std::map<std::string, std::string> bias_texts;  // logit_bias
  std::vector<int64_t> stop_ids;                  // stop_token_ids
  GrammarChoice form;                             // json_schema, regex, grammar

  // The options that are meant; `key` names one in errors ("--stop"). Throws ConfigError.
  using Key = std::string (*)(const SamplingOption&);
  GenerationOptions meant(Key key) const;
};

// Calls f with the value of an option, as it is written.
template <class Written, class F>
void visit_written(const SamplingOption& option, Written& written, F&& f) {
  visit(option, written, [&](auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, LogitBias>)
      f(written.bias_texts);
    else if constexpr (std::is_same_v<Value, std::vector<int32_t>>)
      f(written.stop_ids);
    else if constexpr (std::is_same_v<Value, GrammarMember>)
      f(written.form.*value);
    else
      f(value);
  });
}

struct RolloutSection : WrittenOptions {
  RolloutSection() { max_new_tokens = 256; }
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
