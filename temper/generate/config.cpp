#include "temper/generate/config.h"

#include <algorithm>

#include "temper/generate/option_values.h"

namespace temper::generate {

void RolloutSection::fields(Fields& f) {
  f.add("max_new_tokens", max_new_tokens, "maximum number of tokens of a completion", at_least(1));
  f.add("temperature", temperature,
        "sampling temperature; the policy's, old and reference log-probabilities are taken at it, "
        "too",
        at_least(0));
  f.add("top_k", top_k, "sample among so many likeliest tokens; 0: all", at_least(0));
  f.add("top_p", top_p, "sample among the likeliest tokens that have this mass together",
        Rule{.min = 0, .max = 1, .above_min = true});
  f.add("min_p", min_p, "leave out tokens below this share of the likeliest one's probability",
        between(0, 1));
  f.add("repetition_penalty", repetition_penalty,
        "divides the logits of tokens that occurred; 1: none", above(0));
  f.add("presence_penalty", presence_penalty,
        "taken off the logits of tokens that the completion has; 0: none");
  f.add("frequency_penalty", frequency_penalty,
        "taken off the logits of tokens for each time that the completion has them; 0: none");
  f.add("no_repeat_ngram", no_repeat_ngram,
        "no run of so many tokens of prompt and completion comes twice; 0: it may", at_least(0));
  f.add("logit_bias", logit_bias, "added to the logits of these token ids, as in {\"11\": -5}");
  f.add("min_new_tokens", min_new_tokens, "no completion ends before it has so many tokens",
        at_least(0));
  f.add("stop", stop, "texts that end a completion and are cut from it", one_or_list());
  f.add("stop_token_ids", stop_token_ids, "token ids that end a completion beside the model's own",
        at_least(0));
  f.add(
      "json_schema", json_schema,
      "file of a JSON schema that completions keep to; null: none. Log-probabilities stay those of "
      "the full distribution, here and below");
  f.add("regex", regex, "regular expression that whole completions match; null: none");
  f.add("grammar", grammar, "file of an EBNF grammar that completions keep to; null: none");
  f.add("ignore_eos", ignore_eos, "go on after an end token, to max_new_tokens");
  f.add(
      "cache_bytes", cache_bytes,
      "maximum memory for keys and values; null: the ranks of a machine share a quarter of what is "
      "usable",
      at_least(1));
  f.add("speculative", speculative,
        "tokens that are drafted from the prompt and the group's other samples and verified "
        "together: auto (as many as pay), off, or at most so many a step; changes the speed, never "
        "a token");
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
  o.stop = stop;
  return o;
}

EngineOptions RolloutSection::engine_options() const {
  return {.cache_bytes = cache_bytes.value_or(0),
          .speculative = read_speculative(speculative, "rollout.speculative")};
}

}  // namespace temper::generate
