#include "temper/generate/sampling/option_table.h"

#include <algorithm>
#include <sstream>

#include "temper/base/error.h"

namespace temper::generate {
namespace {

using S = SamplingOptions;
using G = GenerationOptions;
using C = GrammarChoice;
using Elsewhere = SamplingOption::Elsewhere;
using Everywhere = std::array<Elsewhere, 5>;

const Elsewhere kSame, kNone{.name = nullptr};
Elsewhere named(const char* name) { return {.name = name}; }
Elsewhere within(double min, double max) { return {.rule = between(min, max)}; }

Everywhere at_all(const Elsewhere& e = {}) { return {e, e, e, e, e}; }
Everywhere at_servers(const Elsewhere& openai = {}, const Elsewhere& sglang = {}) {
  return {openai, openai, sglang, kNone, kNone};
}
Everywhere at_each(const Elsewhere& openai, const Elsewhere& vllm, const Elsewhere& sglang,
                   const Elsewhere& tinker, const Elsewhere& generation_config) {
  return {openai, vllm, sglang, tinker, generation_config};
}

std::vector<SamplingOption> make_options() {
  constexpr auto kMost = static_cast<double>(kMostNewTokens);
  const Rule any, file = reads(InputFiles::kOther), share{.min = 0, .max = 1, .above_min = true};
  const Elsewhere none_is_minus_one{.rule = at_least(-1)};
  return {
      {"max_new_tokens", &G::max_new_tokens, between(1, kMost),
       "maximum number of tokens of a completion",
       at_each(named("max_tokens"), named("max_tokens"), kSame, named("max_tokens"), kNone)},
      {"temperature", &S::temperature, at_least(0),
       "sampling temperature; log-probabilities of the policy and the reference are computed at "
       "it, too (grpo and ppo need a number above 0)",
       at_all(), nullptr, "sampling temperature; 0: greedy"},
      {"top_k", &S::top_k, at_least(0), "sample among the top_k most likely tokens; 0: all",
       at_all(none_is_minus_one)},
      {"top_p", &S::top_p, share,
       "nucleus sampling: sample among the most likely tokens whose probabilities sum to top_p",
       at_all()},
      {"min_p", &S::min_p, between(0, 1),
       "exclude tokens less likely than min_p times the most likely token; 0: none",
       at_each(kSame, kSame, kSame, kNone, kSame)},
      {"repetition_penalty", &S::repetition_penalty, above(0),
       "divides positive logits, and multiplies negative ones, of tokens that occur in the prompt "
       "or the completion; 1: none",
       at_each(kSame, kSame, within(0, 2), kNone, kSame)},
      {"presence_penalty", &S::presence_penalty, between(-2, 2),
       "subtracted from the logits of tokens that occur in the completion; 0: none", at_servers()},
      {"frequency_penalty", &S::frequency_penalty, between(-2, 2),
       "subtracted from the logits of tokens once per occurrence in the completion; 0: none",
       at_servers()},
      {"no_repeat_ngram", &S::no_repeat_ngram, at_least(0),
       "no n-gram of this size occurs twice in prompt and completion; 0: no restriction",
       at_each(named("no_repeat_ngram_size"), kNone, kNone, kNone, kNone)},
      {"logit_bias", &S::logit_bias, between(-100, 100),
       "added to the logits of tokens: {token id: number}, as in {\"11\": -5}", at_servers(),
       nullptr, "ID=NUMBER: added to the logit of the token with this id; may be repeated"},
      {"min_new_tokens", &G::min_new_tokens, between(0, kMost),
       "minimum number of tokens of a completion; end tokens are banned before",
       at_servers(named("min_tokens"))},
      // Tinker's takes token ids, too (tinker/samples_read.cpp).
      {"stop", &G::stop, one_or_list(),
       "stop strings: texts that end a completion and are cut from its text", at_servers(), nullptr,
       "stop string: ends a completion and is cut from its text; may be repeated"},
      {"stop_token_ids", &G::stop_token_ids, at_least(0),
       "token ids that end a completion, in addition to the model's end tokens", at_servers(),
       "--stop-token-id",
       "id of a token that ends a completion, in addition to the model's end tokens; may be "
       "repeated"},
      {"json_schema", &C::json_schema, file,
       "file of a JSON schema that constrains completions; null: none. Recorded log-probabilities "
       "are those of the unconstrained distribution, here and below",
       at_servers(named("structured_outputs.json")), nullptr,
       "file of a JSON schema that constrains completions; logprobs stay those of the "
       "unconstrained distribution"},
      {"regex", &C::regex, any,
       "regular expression that the whole completion must match; null: none",
       at_servers(named("structured_outputs.regex")), nullptr,
       "regular expression that the whole completion must match"},
      {"grammar", &C::grammar, file,
       "file of an EBNF grammar (GBNF notation) that constrains completions; null: none",
       at_servers(named("structured_outputs.grammar"), named("ebnf")), nullptr,
       "file of an EBNF grammar (GBNF notation: rules NAME ::= ..., starting at `root`) that "
       "constrains completions"},
      {"ignore_eos", &G::ignore_eos, any, "continue after an end token, up to max_new_tokens",
       at_servers()},
  };
}

}  // namespace

const std::vector<SamplingOption>& sampling_options() {
  static const std::vector<SamplingOption> options = make_options();
  return options;
}

const SamplingOption& sampling_option(SamplingOption::Member member) {
  const auto is_it = [&](const SamplingOption& option) { return option.holds(member); };
  return *std::find_if(sampling_options().begin(), sampling_options().end(), is_it);
}

std::optional<SamplingOption::Offer> SamplingOption::at(Api api) const {
  const Elsewhere& there = elsewhere[static_cast<size_t>(api)];
  if (!there.name) return std::nullopt;
  return Offer{*there.name ? there.name : name, there.rule.value_or(rule)};
}

std::string SamplingOption::flag() const {
  if (flag_name) return flag_name;
  std::string flag = temper::str("--", name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

bool SamplingOption::is_set(const GenerationOptions& options) const {
  static const GenerationOptions usual;
  return std::visit(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), GrammarMember>)
          return false;
        else
          return held(options, member) != held(usual, member);
      },
      member);
}

bool allows(const Rule& rule, double value) {
  const double min = rule.min.value_or(-kLargestNumber), max = rule.max.value_or(kLargestNumber);
  return (rule.above_min ? value > min : value >= min) &&
         (rule.below_max ? value < max : value <= max);
}

std::string allowed(const Rule& rule, bool whole) {
  std::ostringstream out;
  out.precision(15);
  out << (whole ? "a whole number" : "a number");
  const bool from = rule.min && !rule.above_min && rule.max;
  if (rule.min)
    out << (rule.above_min ? " above " : from ? " from " : " of at least ") << *rule.min;
  if (rule.max)
    out << (from ? " to " : " and ")
        << (rule.below_max ? "below "
            : from         ? ""
                           : "at most ")
        << *rule.max;
  return out.str();
}

}  // namespace temper::generate
