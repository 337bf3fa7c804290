#include <cmath>
#include <iostream>
#include <map>

#include "temper/base/error.h"
#include "temper/cli/parts/options.h"
#include "temper/generate/sampling/suggested_sampling.h"

namespace temper::cli {

namespace {

using generate::LogitBias, generate::Overloaded;

CLI::Validator fits(const Rule& rule, bool whole) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const bool fits = CLI::detail::lexical_cast(text, value) && generate::allows(rule, value) &&
                          (!whole || value == std::trunc(value));
        return fits ? std::string()
                    : str("found ", text, ", expected ", generate::allowed(rule, whole));
      },
      "");
}

std::map<std::string, std::string> pairs_of(const std::vector<std::string>& given) {
  std::map<std::string, std::string> pairs;
  for (const std::string& one : given) {
    const size_t equals = one.find('=');
    pairs[one.substr(0, equals)] = equals == std::string::npos ? "" : one.substr(equals + 1);
  }
  return pairs;
}

}  // namespace

void SamplingFlags::add_to(CLI::App& app) {
  const auto may_be_repeated = [](CLI::Option* option) {
    return option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  for (const generate::SamplingOption& option : generate::sampling_options()) {
    const std::string flag = option.flag(),
                      help = option.flag_help ? option.flag_help : option.help;
    const auto add_number = [&](auto& value, bool whole) {
      app.add_option(flag, value, help)->check(fits(option.rule, whole));
    };
    visit(option, options,
          Overloaded{[&](double& value) { add_number(value, false); },
                     [&](int64_t& value) { add_number(value, true); },
                     [&](bool& value) { app.add_flag(flag, value, help); },
                     [&](std::vector<std::string>& texts) {
                       may_be_repeated(app.add_option(flag, texts, help))
                           ->check([](const std::string& text) {
                             return text.empty()
                                        ? "found an empty text, expected at least one character"
                                        : "";
                           });
                     },
                     [&](std::vector<int32_t>& ids) {
                       may_be_repeated(app.add_option(flag, ids, help))->check(whole_number());
                     },
                     [&](LogitBias& bias) {
                       may_be_repeated(app.add_option_function<std::vector<std::string>>(
                           flag,
                           [&bias, flag](const std::vector<std::string>& given) {
                             bias = generate::read_logit_bias(pairs_of(given), flag);
                           },
                           help));
                     },
                     [&](generate::GrammarMember form) {
                       app.add_option_function<std::string>(
                           flag,
                           [this, form](const std::string& given) {
                             grammar_.*form = given;
                             options.grammar = generate::grammar_spec(grammar_, "--json-schema",
                                                                      "--regex", "--grammar");
                           },
                           help);
                     }});
  }
  app.add_option("--seed", options.sampling.seed,
                 "random seed; a choice depends on it, the row's index, the sample's number and "
                 "the position")
      ->check(whole_number());
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

void follow_suggested(const CLI::App& app, const std::string& model_dir,
                      generate::SamplingOptions& sampling) {
  const auto not_given = [&](const generate::SamplingOption& option) {
    return app.count(option.flag()) == 0;
  };
  const std::string taken = generate::take_suggested(model_dir, sampling, not_given);
  if (!taken.empty())
    std::cerr << "sampling as generation_config.json suggests: " << taken << "; flags win"
              << std::endl;
}

void say_what_is_used(const std::string& model_dir, const generate::SamplingOptions& sampling) {
  generate::SamplingOptions suggested = sampling;
  const std::string says = generate::take_suggested(model_dir, suggested);
  const std::string used = generate::described(sampling);
  if (generate::described(suggested) != used)
    std::cerr << "sampling with " << used << "; generation_config.json suggests " << says
              << std::endl;
}

}  // namespace temper::cli
