// The table of sampling options: for each, the member that holds it, its valid values, its help,
// and its name in other APIs. The config section, the command-line flags, the server, the Tinker
// API, generation_config.json and the clients of rollout servers read this table. A new option
// needs a member of SamplingOptions or GenerationOptions, a row here, and the code that implements
// it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/generate/request.h"

namespace temper::generate {

// The constraint on completions: a JSON schema's file, a regular expression or a grammar's file, at
// most one of them. GenerationOptions::grammar is made from it (option_values.h).
struct GrammarChoice {
  std::optional<std::string> json_schema, regex, grammar;
  bool any() const { return json_schema || regex || grammar; }
};
using GrammarMember = std::optional<std::string> GrammarChoice::*;

// The APIs and files outside Temper that have such options.
enum class Api {
  kOpenAi,  // OpenAI's API with vLLM's additions: `temper serve`, and rollout servers of that kind
  kVllm,
  kSglang,
  kTinker,
  kGenerationConfig,  // a model's generation_config.json
};

struct SamplingOption {
  using Member =
      std::variant<double SamplingOptions::*, int64_t SamplingOptions::*,
                   LogitBias SamplingOptions::*, int64_t GenerationOptions::*,
                   bool GenerationOptions::*, std::vector<std::string> GenerationOptions::*,
                   std::vector<int32_t> GenerationOptions::*, GrammarMember>;
  struct Elsewhere {
    const char* name = "";     // empty: the same name; null: the API has no such option
    std::optional<Rule> rule;  // if other values are valid there
  };
  struct Offer {
    std::string name;
    Rule rule;
  };

  const char* name;  // rollout.NAME
  Member member;
  Rule rule;  // for each value, if the option holds several
  const char* help;
  std::array<Elsewhere, 5> elsewhere;  // indexed by Api
  const char* flag_name = nullptr;     // null: --NAME, with - for _
  const char* flag_help = nullptr;     // null: `help`

  bool holds(Member one) const { return member == one; }
  // The option's name and valid values in the API; nullopt if the API does not have it.
  std::optional<Offer> at(Api api) const;
  // Converts a value from an API to this table's, and back. Where the API's minimum is lower, it
  // means this table's minimum: top_k -1 is 0, all tokens.
  template <class Number>
  Number from_api(Number value) const {
    return rule.min ? std::max(value, static_cast<Number>(*rule.min)) : value;
  }
  int64_t to_api(const Offer& offer, int64_t value) const {
    const bool is_minimum = rule.min && value == static_cast<int64_t>(*rule.min);
    return is_minimum ? std::min(value, static_cast<int64_t>(offer.rule.min.value())) : value;
  }
  std::string flag() const;  // "--top-k"
  // Whether the options differ from the default of GenerationOptions here. Always false for a
  // GrammarMember.
  bool is_set(const GenerationOptions& options) const;
};

// In the order of the config section.
const std::vector<SamplingOption>& sampling_options();
const SamplingOption& sampling_option(SamplingOption::Member member);

// The value of a member, of the options or of their `sampling`.
template <class Options, class Member>
auto& held(Options& options, Member member) {
  if constexpr (requires { options.sampling.*member; })
    return options.sampling.*member;
  else
    return options.*member;
}

// Calls f with a reference to the option's value in `options`, or with its GrammarMember.
template <class Options, class F>
void visit(const SamplingOption& option, Options& options, F&& f) {
  std::visit(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), GrammarMember>)
          f(member);
        else
          f(held(options, member));
      },
      option.member);
}

// As visit(), for options with a single number only.
template <class Options, class F>
void visit_number(const SamplingOption& option, Options& options, F&& f) {
  visit(option, options, [&](auto&& value) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, double> || std::is_same_v<Value, int64_t>) f(value);
  });
}

// Combines lambdas into one visitor for std::visit.
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

inline constexpr double kLargestNumber = 1e15;  // where a rule has no bound, as in a config

// Whether a number is within the rule's bounds. allowed(): the valid values in words, as in "a
// whole number of at least 1".
bool allows(const Rule& rule, double value);
std::string allowed(const Rule& rule, bool whole);

}  // namespace temper::generate
