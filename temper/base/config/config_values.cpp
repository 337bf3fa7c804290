// Scalars of a config, to and from YAML. The member's type decides what a text means, so that 2e-5
// is a number for a double and a name for a string.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/base/config/config_synonyms.h"
#include "temper/base/error.h"

namespace temper::config_detail {
namespace {

bool is_unquoted(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && !node.quoted;
}

// Shortest decimal that reads back to the same double. YAML 1.1 takes a number with an exponent for
// text unless it has a point.
std::string number_text(double value) {
  char buffer[40];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

std::string bound_text(double value) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

// Whether the whole text is a number; std::from_chars knows no leading "+" but "inf" and "nan".
template <class Number>
bool parse_number(std::string_view text, Number& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return !text.empty() && error == std::errc() && stop == end &&
         std::isfinite(static_cast<double>(value));
}

// Why a number did not read, where the reason can be told.
std::string number_hint(const YamlNode& node, bool integer) {
  if (node.kind != YamlNode::Kind::kScalar) return {};
  double value = 0;
  if (node.quoted) return parse_number(node.text, value) ? "write it without quotes" : "";
  std::string digits = node.text;
  std::erase(digits, '_');
  if (digits != node.text && parse_number(digits, value)) return "write " + digits;
  if (integer && parse_number(node.text, value) && value == std::trunc(value) &&
      std::abs(value) < 1e15)
    return "write " + std::to_string(static_cast<int64_t>(value));
  return {};
}

void check_bounds(const YamlNode& node, const std::string& path, const Rule& rule, double value,
                  const char* type) {
  const bool low = rule.min && (rule.above_min ? value <= *rule.min : value < *rule.min);
  const bool high = rule.max && (rule.below_max ? value >= *rule.max : value > *rule.max);
  if (low || high) fail(node, path, describe_type(type, rule));
}

template <class Number>
void read_number(const YamlNode& node, const std::string& path, const Rule& rule, const char* type,
                 Number& value) {
  Number read{};
  if (!is_unquoted(node) || !parse_number(node.text, read))
    fail(node, path, describe_type(type, rule), number_hint(node, std::is_integral_v<Number>));
  check_bounds(node, path, rule, static_cast<double>(read), type);
  // Largest absolute value: its square is still a float32. Larger values would overflow later, in
  // an error that names another cause.
  constexpr double kLargest = 1e15;
  if (std::is_floating_point_v<Number> && std::abs(static_cast<double>(read)) > kLargest)
    fail(node, path, str(type, " of at most ", bound_text(kLargest)));
  value = read;
}

}  // namespace

void fail(const YamlNode& node, const std::string& path, const std::string& expected,
          const std::string& hint) {
  const std::string origin = node.origin.str();  // empty: the path says it, as of a flag
  throw ConfigError(str(origin, origin.empty() ? "" : ": ", path, ": found ", node.found(),
                        ", expected ", expected, hint.empty() ? "" : "; ", hint));
}

std::string list_hint(const YamlNode& node, const std::string& path) {
  if (node.kind != YamlNode::Kind::kScalar || node.text.empty()) return {};
  const std::string& text = node.text;
  if (!path.ends_with("command")) return {};
  // A command with a shell's special characters, or with NAME=value before the program, needs a
  // shell.
  const std::string first = text.substr(0, text.find(' '));
  if (text.find_first_of("|<>&;$`*\"'\\") != std::string::npos ||
      (first.size() < text.size() && first.find('=') != std::string::npos))
    return "a program and its arguments are a list: [bash, -c, \"the command\"]";
  std::string words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words += (words.empty() ? "" : ", ") + word;
  return "a program and its arguments are a list: [" + words + "]";
}

std::string describe_type(const char* type, const Rule& rule) {
  std::string out;
  for (const std::string& choice : rule.choices) out += (out.empty() ? "" : " | ") + choice;
  if (!out.empty()) return out;
  out = type;
  if (rule.min) out += (rule.above_min ? " > " : " >= ") + bound_text(*rule.min);
  if (rule.max)
    out += str(rule.min ? " and" : "", rule.below_max ? " < " : " <= ", bound_text(*rule.max));
  return out;
}

std::string join_names(std::span<const char* const> names) {
  std::string out;
  for (const char* name : names) out += str(out.empty() ? "" : " | ", name);
  return out;
}

size_t read_enum(const YamlNode& node, const std::string& path,
                 std::span<const char* const> names) {
  const auto found = std::find(names.begin(), names.end(), node.text);
  if (node.kind == YamlNode::Kind::kScalar && found != names.end())
    return static_cast<size_t>(found - names.begin());
  const std::string word = node.text.substr(0, 80);
  const std::string alike = nearest(word, std::vector<std::string>(names.begin(), names.end()));
  std::string hint = alike.empty() ? "" : "did you mean `" + alike + "`?";
  // A value of other programs may be a key here: `method: dora`.
  const KeySynonym* synonym = find_key_synonym(word);
  if (synonym && !synonym->key.empty()) hint = str("it is the key ", synonym->key, " here");
  fail(node, path, join_names(names), hint);
}

void read_value(const YamlNode& node, const std::string& path, const Rule&, bool& value) {
  static constexpr std::string_view kYes[] = {"true", "yes", "on", "y", "1"},
                                    kNo[] = {"false", "no", "off", "n", "0"};
  if (is_unquoted(node) && (node.text == "true" || node.text == "false")) {
    value = node.text == "true";
    return;
  }
  std::string lower = node.text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const bool yes = std::find(std::begin(kYes), std::end(kYes), lower) != std::end(kYes);
  const bool no = std::find(std::begin(kNo), std::end(kNo), lower) != std::end(kNo);
  fail(node, path, "true or false", yes ? "write true" : no ? "write false" : "");
}

void read_value(const YamlNode& node, const std::string& path, const Rule& rule, int64_t& value) {
  read_number(node, path, rule, "integer", value);
}

void read_value(const YamlNode& node, const std::string& path, const Rule& rule, double& value) {
  read_number(node, path, rule, "number", value);
}

void read_value(const YamlNode& node, const std::string& path, const Rule& rule,
                std::string& value) {
  const auto& choices = rule.choices;
  if (node.kind != YamlNode::Kind::kScalar) fail(node, path, describe_type("text", rule));
  if (!choices.empty() && std::find(choices.begin(), choices.end(), node.text) == choices.end()) {
    const std::string alike = nearest(node.text.substr(0, 80), choices);
    fail(node, path, describe_type("text", rule),
         alike.empty() ? "" : "did you mean `" + alike + "`?");
  }
  if (rule.required && node.text.empty()) fail(node, path, "text that is not empty");
  value = node.text;
}

namespace {

// "prompt=question completion=answer", with blanks or commas between: what --columns takes.
void read_pairs(const YamlNode& node, const std::string& path, const std::string& text,
                std::map<std::string, std::string>& value) {
  constexpr std::string_view kBetween = ", \t\n";
  const auto refuse = [&] {
    fail(node, path, "a map of text, as in {prompt: question} or prompt=question");
  };
  size_t begin = text.find_first_not_of(kBetween);
  if (begin == text.npos) refuse();
  while (begin != text.npos) {
    const size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    const std::string pair = text.substr(begin, end - begin);
    const size_t equals = pair.find('=');
    if (equals == 0 || equals == pair.npos || equals + 1 == pair.size()) refuse();
    value[pair.substr(0, equals)] = pair.substr(equals + 1);
    begin = text.find_first_not_of(kBetween, end);
  }
}

}  // namespace

void read_value(const YamlNode& node, const std::string& path, const Rule&,
                std::map<std::string, std::string>& value) {
  value.clear();
  if (node.kind == YamlNode::Kind::kNull) return;
  if (node.kind == YamlNode::Kind::kScalar) return read_pairs(node, path, node.text, value);
  for (const YamlNode& item : node.items) {
    if (item.kind != YamlNode::Kind::kScalar) fail(item, path, "a map of text");
    read_pairs(item, path, item.text, value);
  }
  for (const YamlNode::Entry& entry : node.entries) {
    if (entry.value.kind == YamlNode::Kind::kNull && entry.key.find('=') != entry.key.npos)
      read_pairs(node, path, entry.key, value);  // {prompt=question}
    else
      read_value(entry.value, path + "." + entry.key, {}, value[entry.key]);
  }
}

YamlNode write_value(bool value) { return YamlNode::scalar(value ? "true" : "false"); }
YamlNode write_value(int64_t value) { return YamlNode::scalar(std::to_string(value)); }
YamlNode write_value(double value) { return YamlNode::scalar(number_text(value)); }
YamlNode write_value(const std::string& value) { return YamlNode::scalar(value, true); }
YamlNode write_value(const std::map<std::string, std::string>& value) {
  if (value.empty()) return YamlNode::null();
  YamlNode map = YamlNode::map();
  for (const auto& [key, text] : value)
    map.entries.push_back({key, {}, YamlNode::scalar(text, true), {}});
  return map;
}

}  // namespace temper::config_detail
