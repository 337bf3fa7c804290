#include "temper/generate/config.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/generate/sampling/option_values.h"

namespace temper::generate {

void RolloutSection::fields(Fields& f) {
  f.add("max_new_tokens", max_new_tokens, "maximum number of tokens of a completion", at_least(1));
  f.add("temperature", temperature,
        "sampling temperature; log-probabilities of the policy and the reference are computed at "
        "it, too (grpo and ppo need a number above 0)",
        at_least(0));
  f.add("top_k", top_k, "sample among the top_k most likely tokens; 0: all", at_least(0));
  f.add("top_p", top_p,
        "nucleus sampling: sample among the most likely tokens whose probabilities sum to top_p",
        Rule{.min = 0, .max = 1, .above_min = true});
  f.add("min_p", min_p,
        "exclude tokens less likely than min_p times the most likely token; 0: none",
        between(0, 1));
  f.add("repetition_penalty", repetition_penalty,
        "divides positive logits, and multiplies negative ones, of tokens that occur in the prompt "
        "or "
        "the completion; 1: none",
        above(0));
  f.add("presence_penalty", presence_penalty,
        "subtracted from the logits of tokens that occur in the completion; 0: none");
  f.add("frequency_penalty", frequency_penalty,
        "subtracted from the logits of tokens once per occurrence in the completion; 0: none");
  f.add("no_repeat_ngram", no_repeat_ngram,
        "no n-gram of this size occurs twice in prompt and completion; 0: no restriction",
        at_least(0));
  f.add("logit_bias", logit_bias,
        "added to the logits of tokens: {token id: number}, as in {\"11\": -5}");
  f.add("min_new_tokens", min_new_tokens,
        "minimum number of tokens of a completion; end tokens are banned before", at_least(0));
  f.add("stop", stop, "stop strings: texts that end a completion and are cut from its text",
        one_or_list());
  f.add("stop_token_ids", stop_token_ids,
        "token ids that end a completion, in addition to the model's end tokens", at_least(0));
  f.add("json_schema", json_schema,
        "file of a JSON schema that constrains completions; null: none. Recorded log-probabilities "
        "are those of the unconstrained distribution, here and below");
  f.add("regex", regex, "regular expression that the whole completion must match; null: none");
  f.add("grammar", grammar,
        "file of an EBNF grammar (GBNF notation) that constrains completions; null: none");
  f.add("ignore_eos", ignore_eos, "continue after an end token, up to max_new_tokens");
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

GenerationOptions RolloutSection::options(int64_t seed) const {
  GenerationOptions o;
  o.sampling = {.temperature = temperature,
                .top_k = top_k,
                .top_p = top_p,
                .min_p = min_p,
                .repetition_penalty = repetition_penalty,
                .presence_penalty = presence_penalty,
                .frequency_penalty = frequency_penalty,
                .logit_bias = read_logit_bias(logit_bias, "rollout.logit_bias"),
                .no_repeat_ngram = no_repeat_ngram,
                .seed = static_cast<uint64_t>(seed)};
  o.max_new_tokens = max_new_tokens;
  o.min_new_tokens = min_new_tokens;
  o.ignore_eos = ignore_eos;
  for (const int64_t id : stop_token_ids)
    o.stop_token_ids.push_back(static_cast<int32_t>(std::min<int64_t>(id, INT32_MAX)));
  o.grammar = grammar_spec({json_schema, regex, grammar}, "rollout.json_schema", "rollout.regex",
                           "rollout.grammar");
  check<ConfigError>(std::find(stop.begin(), stop.end(), "") == stop.end(),
                     "rollout.stop: found an empty text, expected at least one character");
  o.stop = stop;
  return o;
}

EngineOptions RolloutSection::engine_options() const {
  return {.cache_bytes = cache_bytes.value_or(0),
          .speculative = read_speculative(speculative, "rollout.speculative")};
}

}  // namespace temper::generate
