#include <map>
#include <optional>

#include "temper/cli/parts/options.h"

namespace temper::cli {

void SamplingFlags::add_to(CLI::App& app) {
  app.add_option("--max-new-tokens", options.max_new_tokens,
                 "maximum number of tokens of a completion")
      ->check(CLI::Range(int64_t{1}, generate::kMostNewTokens));
  app.add_option("--temperature", options.sampling.temperature, "sampling temperature; 0: greedy")
      ->check(non_negative());
  app.add_option("--top-k", options.sampling.top_k,
                 "sample among this many most likely tokens; 0: all")
      ->check(non_negative());
  app.add_option(
         "--top-p", options.sampling.top_p,
         "nucleus sampling: sample among the most likely tokens whose probabilities sum to this")
      ->check(within(1e-9, 1, "a number above 0 and at most 1"));
  app.add_option("--min-p", options.sampling.min_p,
                 "exclude tokens less likely than this times the most likely token; 0: none")
      ->check(within(0, 1, "a number from 0 to 1"));
  app.add_option("--repetition-penalty", options.sampling.repetition_penalty,
                 "divides positive logits, and multiplies negative ones, of tokens that occur in "
                 "the prompt or "
                 "the completion; 1: none")
      ->check(above_zero());
  add_rules(app);
  app.add_option("--stop", options.stop,
                 "stop string: ends a completion and is cut from its text; may be repeated")
      ->expected(1)
      ->check([](const std::string& text) {
        return text.empty() ? "found an empty text, expected at least one character" : "";
      })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--seed", options.sampling.seed,
                 "random seed; a choice depends on it, the row's index, the sample's number and "
                 "the position")
      ->check(whole_number());
  app.add_flag("--ignore-eos", options.ignore_eos,
               "continue after an end token, up to --max-new-tokens");
  add_grammar(app);
}

void SamplingFlags::add_rules(CLI::App& app) {
  app.add_option("--presence-penalty", options.sampling.presence_penalty,
                 "subtracted from the logits of tokens that occur in the completion; 0: none")
      ->check(any_number());
  app.add_option("--frequency-penalty", options.sampling.frequency_penalty,
                 "subtracted from the logits of tokens once per occurrence in the completion")
      ->check(any_number());
  app.add_option("--no-repeat-ngram", options.sampling.no_repeat_ngram,
                 "no n-gram of this size occurs twice in prompt and completion; 0: no restriction")
      ->check(non_negative());
  app.add_option_function<std::vector<std::string>>(
         "--logit-bias",
         [this](const std::vector<std::string>& given) {
           std::map<std::string, std::string> bias;
           for (const std::string& one : given) {
             const size_t equals = one.find('=');
             bias[one.substr(0, equals)] =
                 equals == std::string::npos ? "" : one.substr(equals + 1);
           }
           options.sampling.logit_bias = generate::read_logit_bias(bias, "--logit-bias");
         },
         "ID=NUMBER: added to the logit of the token with this id; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--min-new-tokens", options.min_new_tokens,
                 "minimum number of tokens of a completion; end tokens are banned before")
      ->check(non_negative());
  app.add_option("--stop-token-id", options.stop_token_ids,
                 "id of a token that ends a completion, in addition to the model's end tokens; may "
                 "be repeated")
      ->expected(1)
      ->check(whole_number())
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void SamplingFlags::add_grammar(CLI::App& app) {
  const auto add = [&](const char* flag, std::optional<std::string>& value, const char* help) {
    app.add_option_function<std::string>(
        flag,
        [this, &value](const std::string& given) {
          value = given;
          options.grammar =
              generate::grammar_spec(grammar_, "--json-schema", "--regex", "--grammar");
        },
        help);
  };
  add("--json-schema", grammar_.json_schema,
      "file of a JSON schema that constrains completions; logprobs stay those of the unconstrained "
      "distribution");
  add("--regex", grammar_.regex, "regular expression that the whole completion must match");
  add("--grammar", grammar_.grammar,
      "file of an EBNF grammar (GBNF notation: rules NAME ::= ..., starting at `root`) that "
      "constrains completions");
}

void add_speculative(CLI::App& app, generate::EngineOptions& engine) {
  app.add_option_function<std::string>(
      "--speculative",
      [&engine](const std::string& given) {
        engine.speculative = generate::read_speculative(given, "--speculative");
      },
      "speculative decoding, drafted from the prompt and its other samples: auto (default; as many "
      "tokens as are expected to save time), off, or N: at most N drafted tokens per sequence and "
      "step; changes the speed, never the result");
}

void BatchFlags::add_to(CLI::App& app) {
  app.add_option("--num-samples", num_samples, "number of completions per prompt")
      ->check(within(1, 1e6, "a whole number from 1 to 1,000,000"));
  app.add_option(
         "--beams", beams.beams,
         "beam search with this many beams; prints the best --num-samples of them, best first")
      ->check(at_least_one());
  app.add_option(
         "--length-penalty", beams.length_penalty,
         "with --beams: scores are summed log-probabilities divided by length to this power")
      ->needs("--beams")
      ->check(any_number());
  app.add_option("--max-batch", engine.max_batch,
                 "maximum number of sequences decoded at once; changes the speed, never the result")
      ->check(above_zero());
  app.add_option("--cache-bytes", engine.cache_bytes,
                 "maximum memory of the key-value cache; 0: a quarter of the usable memory")
      ->check(non_negative());
  add_speculative(app, engine);
}

}  // namespace temper::cli
