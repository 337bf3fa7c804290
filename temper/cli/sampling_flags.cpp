#include <map>
#include <optional>

#include "temper/cli/options.h"

namespace temper::cli {

void SamplingFlags::add_to(CLI::App& app) {
  app.add_option("--max-new-tokens", options.max_new_tokens,
                 "largest number of tokens of a completion")
      ->check(CLI::Range(int64_t{1}, generate::kMostNewTokens));
  app.add_option("--temperature", options.sampling.temperature, "sampling temperature; 0: greedy")
      ->check(non_negative());
  app.add_option("--top-k", options.sampling.top_k,
                 "number of likeliest tokens to sample among; 0: all")
      ->check(non_negative());
  app.add_option("--top-p", options.sampling.top_p,
                 "sample among the likeliest tokens whose probabilities add up to this")
      ->check(within(1e-9, 1, "a number above 0 and at most 1"));
  app.add_option("--min-p", options.sampling.min_p,
                 "leave out tokens below this share of the likeliest one's probability")
      ->check(within(0, 1, "a number from 0 to 1"));
  app.add_option("--repetition-penalty", options.sampling.repetition_penalty,
                 "divisor of the logits of tokens that occurred; 1: no penalty")
      ->check(above_zero());
  add_rules(app);
  app.add_option("--stop", options.stop,
                 "a text that ends a completion and is cut from it; may be given again")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option(
         "--seed", options.sampling.seed,
         "seed of the random numbers; with a row's index, the sample's number and the position it "
         "decides every choice")
      ->check(whole_number());
  app.add_flag("--ignore-eos", options.ignore_eos, "go on after an end token");
  add_grammar(app);
}

void SamplingFlags::add_rules(CLI::App& app) {
  app.add_option("--presence-penalty", options.sampling.presence_penalty,
                 "taken off the logits of tokens that the completion has; 0: none")
      ->check(any_number());
  app.add_option("--frequency-penalty", options.sampling.frequency_penalty,
                 "taken off the logits of tokens for each time that the completion has them")
      ->check(any_number());
  app.add_option("--no-repeat-ngram", options.sampling.no_repeat_ngram,
                 "no run of so many tokens of prompt and completion comes twice; 0: it may")
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
         "ID=NUMBER: added to the logits of the token with this id; may be given again")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--min-new-tokens", options.min_new_tokens,
                 "no completion ends before it has so many tokens")
      ->check(non_negative());
  app.add_option("--stop-token-id", options.stop_token_ids,
                 "id of a token that ends a completion beside the model's own; may be given again")
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
      "file of a JSON schema that every completion keeps to; logprobs stay those of the full "
      "distribution");
  add("--regex", grammar_.regex, "regular expression that every whole completion matches");
  add("--grammar", grammar_.grammar,
      "file of an EBNF grammar (rules NAME ::= ...; it begins with `root`) that every completion "
      "keeps to");
}

void add_speculative(CLI::App& app, generate::EngineOptions& engine) {
  app.add_option_function<std::string>(
      "--speculative",
      [&engine](const std::string& given) {
        engine.speculative = generate::read_speculative(given, "--speculative");
      },
      "tokens that are drafted from the prompt and its other samples and verified together: auto "
      "(as many as pay), off, or at most so many a step; changes the speed, never the result");
}

void BatchFlags::add_to(CLI::App& app) {
  app.add_option("--num-samples", num_samples, "number of completions of each prompt")
      ->check(at_least_one());
  app.add_option("--beams", beams.beams,
                 "beam search with so many beams; --num-samples of them, the best first")
      ->check(at_least_one());
  app.add_option("--length-penalty", beams.length_penalty,
                 "with --beams, log-probabilities are divided by the length to this power")
      ->check(any_number());
  app.add_option("--max-batch", engine.max_batch,
                 "number of sequences at once; changes the speed, never the result")
      ->check(above_zero());
  app.add_option("--cache-bytes", engine.cache_bytes,
                 "limit on the memory of keys and values; 0: a quarter of what is usable")
      ->check(non_negative());
  add_speculative(app, engine);
}

}  // namespace temper::cli
