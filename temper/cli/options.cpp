#include "temper/cli/options.h"

#include <algorithm>
#include <charconv>
#include <iostream>

#include "temper/base/error.h"

namespace temper::cli {

namespace {

// Where parse_flags puts the flags that it would parse.
thread_local std::vector<Flag>* listing = nullptr;

// "TEXT:{auto,cpu,cuda}": what CLI::IsMember makes of an option's type.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

std::vector<Flag> flags_of(const CLI::App& app) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : app.get_options())
    flags.push_back({option->get_name(), option->get_description(), choices_of(*option),
                     option->get_items_expected_max() > 0});
  return flags;
}

// A number that is within [low, high], which NaN is not; `expected` says so in words.
CLI::Validator within(double low, double high, const std::string& expected) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const bool is_number = CLI::detail::lexical_cast(text, value);
        return is_number && value >= low && value <= high
                   ? std::string()
                   : temper::str("found ", text, ", expected ", expected);
      },
      "");
}
constexpr double kUnbounded = 1e300;

}  // namespace

CLI::Validator whole_number() {
  return CLI::Validator(
      [](std::string& text) {
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        return error == std::errc() && end == text.data() + text.size()
                   ? std::string()
                   : temper::str("found ", text, ", expected a whole number of at least 0");
      },
      "");
}
CLI::Validator at_least_one() { return within(1, kUnbounded, "a whole number of at least 1"); }
CLI::Validator non_negative() { return within(0, kUnbounded, "a number of at least 0"); }
CLI::Validator above_zero() { return within(1e-300, kUnbounded, "a number above 0"); }
CLI::Validator any_number() { return within(-kUnbounded, kUnbounded, "a number"); }

std::vector<Flag> flags_of(const Verb& verb) {
  std::vector<Flag> flags;
  if (verb.takes != Takes::kFlags) return flags;
  listing = &flags;
  verb.run({});
  listing = nullptr;
  return flags;
}

bool parse_flags(CLI::App& app, const Arguments& arguments) {
  if (std::vector<Flag>* flags = std::exchange(listing, nullptr)) {
    *flags = flags_of(app);
    return false;
  }
  app.name("temper " + app.get_name());
  Arguments reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& e) {
    throw ConfigError(
        temper::str(app.get_name(), ": ", e.what(), "; see ", app.get_name(), " --help"));
  }
  return true;
}

void ModelFlags::add_to(CLI::App& app) {
  app.add_option("--model", model, "directory of a Hugging Face model")->required();
  app.add_option("--adapter", adapter, "directory of a PEFT LoRA adapter");
  app.add_option("--device", device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--dtype", dtype,
                 "of the weights in products: float32 or bfloat16; sums are float32")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
}

void SamplingFlags::add_to(CLI::App& app) {
  app.add_option("--max-new-tokens", options.max_new_tokens, "most tokens of a completion")
      ->check(CLI::Range(int64_t{1}, generate::kMostNewTokens));
  app.add_option("--temperature", options.sampling.temperature, "0: greedy")->check(non_negative());
  app.add_option("--top-k", options.sampling.top_k, "0: all")->check(non_negative());
  app.add_option("--top-p", options.sampling.top_p, "the likeliest tokens whose mass reaches it")
      ->check(within(1e-9, 1, "a number above 0 and at most 1"));
  app.add_option("--min-p", options.sampling.min_p, "share of the likeliest token's probability")
      ->check(within(0, 1, "a number from 0 to 1"));
  app.add_option("--repetition-penalty", options.sampling.repetition_penalty,
                 "divides the logits of tokens that occurred; 1: none")
      ->check(above_zero());
  app.add_option("--stop", options.stop,
                 "a text that ends a completion and is cut from it; may be given again")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--num-samples", num_samples, "completions of each prompt")->check(at_least_one());
  app.add_option("--seed", options.sampling.seed,
                 "with index, sample and position it decides every choice")
      ->check(whole_number());
  app.add_flag("--ignore-eos", options.ignore_eos, "go on after an end token");
  app.add_option("--max-batch", options.max_batch,
                 "sequences at once; changes the speed, never the result")
      ->check(above_zero());
  app.add_option("--cache-bytes", options.cache_bytes,
                 "most memory for keys and values; a quarter of what is usable unless given")
      ->check(above_zero());
}

}  // namespace temper::cli
