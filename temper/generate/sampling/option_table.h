// The options of sampling, each said once: the member that holds it, the values it takes, what it
// does, and what others call it. The config section, the flags, the server, Tinker,
// generation_config.json and rollout servers read this table. A new option is a member of
// SamplingOptions or GenerationOptions, a row here, and the code that obeys it.
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

// A file of a JSON schema, a regular expression, a file of a grammar: at most one of them. Together
// they are GenerationOptions::grammar (option_values.h).
struct GrammarChoice {
  std::optional<std::string> json_schema, regex, grammar;
  bool any() const { return json_schema || regex || grammar; }
};
using GrammarMember = std::optional<std::string> GrammarChoice::*;

// Who else has such options.
enum class Api {
  kOpenAi,  // OpenAI's API with vLLM's additions: `temper serve`, and what it is asked as a server
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
    const char* name = "";     // empty: as here; null: there is no such option
    std::optional<Rule> rule;  // where other values are taken than here
  };
  struct Offer {
    std::string name;
    Rule rule;
  };

  const char* name;  // rollout.NAME
  Member member;
  Rule rule;  // of each value, where it holds several
  const char* help;
  std::array<Elsewhere, 5> elsewhere;  // by Api
  const char* flag_name = nullptr;     // null: --NAME, with - for _
  const char* flag_help = nullptr;     // null: `help`

  bool holds(Member one) const { return member == one; }
  // The option as the API has it, if it has it.
  std::optional<Offer> at(Api api) const;
  // A value there as it is here, and the reverse. Where the minimum is lower there, it stands for
  // the minimum here: top_k's -1 for 0, all.
  template <class Number>
  Number here(Number there) const {
    return rule.min ? std::max(there, static_cast<Number>(*rule.min)) : there;
  }
  int64_t there(const Offer& offer, int64_t here) const {
    const bool is_minimum = rule.min && here == static_cast<int64_t>(*rule.min);
    return is_minimum ? std::min(here, static_cast<int64_t>(offer.rule.min.value())) : here;
  }
  std::string flag() const;  // "--top-k"
  // Whether the options have another value than GenerationOptions are made with. False for what a
  // GrammarMember holds.
  bool is_set(const GenerationOptions& options) const;
};

// In the order of the config section.
const std::vector<SamplingOption>& sampling_options();
const SamplingOption& sampling_option(SamplingOption::Member member);

// What the options hold at a member.
template <class Options, class Member>
auto& held(Options& options, Member member) {
  if constexpr (requires { options.sampling.*member; })
    return options.sampling.*member;
  else
    return options.*member;
}

// Calls f with the (const) value that the options hold for the row, or with a GrammarMember.
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

// As visit(), of the numbers alone.
template <class Options, class F>
void visit_number(const SamplingOption& option, Options& options, F&& f) {
  visit(option, options, [&](auto&& value) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, double> || std::is_same_v<Value, int64_t>) f(value);
  });
}

// One visitor of several lambdas.
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

inline constexpr double kLargestNumber = 1e15;  // where a rule has no bound, as in a config

// Whether the rule's bounds allow a number. And what they do allow in words: "a whole number of at
// least 1".
bool allows(const Rule& rule, double value);
std::string allowed(const Rule& rule, bool whole);

}  // namespace temper::generate
