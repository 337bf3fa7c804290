#include "temper/generate/config.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/generate/sampling/option_values.h"

namespace temper::generate {

void RolloutSection::fields(Fields& f) {
  for (const SamplingOption& option : sampling_options())
    visit_written(option, *this,
                  [&](auto& value) { f.add(option.name, value, option.help, option.rule); });
  f.add(
      "cache_bytes", cache_bytes,
      "maximum memory of the key-value cache; null: a quarter of the usable memory, shared by the "
      "ranks of a machine",
      at_least(1));
  f.add("cache_dtype", cache_dtype,
        "dtype that keys and values are rounded to, in the sampler's cache and in training "
        "and the reference model alike; float16 and bfloat16 halve the cache's bytes per token. "
        "With rollout.server: the server's, as temper serve --cache-dtype");
  f.add("speculative", speculative,
        "tokens that are drafted from the prompt and the group's other samples and verified "
        "together: auto (as many as are expected to save time), off, or N, at most so many per "
        "sequence and step; changes the speed, never a token");
}

void RolloutSection::validate() const {
  check<ConfigError>(min_new_tokens <= max_new_tokens, "rollout.min_new_tokens: found ",
                     min_new_tokens, ", expected at most rollout.max_new_tokens, ", max_new_tokens);
  options(0);
  engine_options();
}

GenerationOptions WrittenOptions::meant(Key key) const {
  const auto named = [key](SamplingOption::Member member) { return key(sampling_option(member)); };
  GenerationOptions o = *this;
  o.sampling.logit_bias = read_logit_bias(bias_texts, named(&SamplingOptions::logit_bias));
  for (const int64_t id : stop_ids)
    o.stop_token_ids.push_back(static_cast<int32_t>(std::min<int64_t>(id, INT32_MAX)));
  o.grammar = grammar_spec(form, named(&GrammarChoice::json_schema), named(&GrammarChoice::regex),
                           named(&GrammarChoice::grammar));
  check<ConfigError>(std::find(stop.begin(), stop.end(), "") == stop.end(),
                     named(&GenerationOptions::stop),
                     ": found an empty text, expected at least one character");
  return o;
}

GenerationOptions RolloutSection::options(int64_t seed) const {
  GenerationOptions o =
      meant([](const SamplingOption& option) { return str("rollout.", option.name); });
  o.sampling.seed = static_cast<uint64_t>(seed);
  return o;
}

EngineOptions RolloutSection::engine_options() const {
  return {.cache_bytes = cache_bytes.value_or(0),
          .speculative = read_speculative(speculative, "rollout.speculative")};
}

}  // namespace temper::generate
