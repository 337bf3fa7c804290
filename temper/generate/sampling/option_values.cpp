#include "temper/generate/sampling/option_values.h"

#include <charconv>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/grammar/grammar.h"

namespace temper::generate {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

template <class T>
bool read_whole(const std::string& text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

LogitBias read_logit_bias(const std::map<std::string, std::string>& bias, const std::string& key) {
  const Rule& rule = sampling_option(&SamplingOptions::logit_bias).rule;
  LogitBias out;
  for (const auto& [token, value] : bias) {
    int32_t id = 0;
    float added = 0;
    check<ConfigError>(read_whole(token, id) && id >= 0, key, ": found the key `", token,
                       "`, expected a token id");
    check<ConfigError>(read_whole(value, added) && allows(rule, added), key, ".", token,
                       ": found `", value, "`, expected ", allowed(rule, false),
                       " (-100 bans a token in practice)");
    out.emplace_back(id, added);
  }
  return out;
}

std::shared_ptr<const grammar::Spec> grammar_spec(const GrammarChoice& given,
                                                  const std::string& schema_key,
                                                  const std::string& regex_key,
                                                  const std::string& grammar_key) {
  using Kind = grammar::Spec::Kind;
  const auto checked = [](Kind kind, std::string text, std::string where) {
    auto spec = std::make_shared<const grammar::Spec>(kind, std::move(text), std::move(where));
    grammar::check_size(*spec);
    return spec;
  };
  const int count =
      given.json_schema.has_value() + given.regex.has_value() + given.grammar.has_value();
  check<ConfigError>(count <= 1, "expected one of ", schema_key, ", ", regex_key, " and ",
                     grammar_key, ", found ", count);
  if (given.regex) return checked(Kind::kRegex, *given.regex, regex_key);
  const auto from_file = [&](Kind kind, const std::string& path, const std::string& key) {
    std::string text;
    try {
      text = read_file(path, kMostBytes);
    } catch (const Error& e) {
      throw ConfigError(key + ": " + e.what());
    }
    return checked(kind, std::move(text), key + " " + path);
  };
  if (given.json_schema) return from_file(Kind::kJsonSchema, *given.json_schema, schema_key);
  if (given.grammar) return from_file(Kind::kGrammar, *given.grammar, grammar_key);
  return nullptr;
}

}  // namespace temper::generate
