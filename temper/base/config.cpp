#include "temper/base/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper {

Rule at_least(double min) { return {.min = min}; }
Rule above(double min) { return {.min = min, .above_min = true}; }
Rule between(double min, double max) { return {.min = min, .max = max}; }
Rule fraction() { return {.min = 0, .max = 1, .below_max = true}; }
Rule one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
Rule required() { return {.required = true}; }
Rule one_or_list() { return {.lone = true}; }

namespace {

std::string number_text(double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::string at(const YamlNode& node, const std::string& path) {
  const std::string origin = node.origin.str();
  return origin.empty() ? path : origin + ": " + path;
}

void check_bounds(const YamlNode& node, const std::string& path, const Rule& rule, double value, const char* type) {
  const bool low = rule.min && (rule.above_min ? value <= *rule.min : value < *rule.min);
  const bool high = rule.max && (rule.below_max ? value >= *rule.max : value > *rule.max);
  if (low || high) config_detail::fail(node, path, config_detail::describe_type(type, rule));
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

namespace config_detail {

void fail(const YamlNode& node, const std::string& path, const std::string& expected) {
  throw ConfigError(at(node, path) + ": found " + node.found() + ", expected " + expected);
}

std::string describe_type(const char* type, const Rule& rule) {
  if (!rule.choices.empty()) {
    std::string names;
    for (const std::string& choice : rule.choices) names += (names.empty() ? "" : " | ") + choice;
    return names;
  }
  std::string out = type;
  if (rule.min) out += (rule.above_min ? " > " : " >= ") + number_text(*rule.min);
  if (rule.max) out += std::string(rule.min ? " and" : "") + (rule.below_max ? " < " : " <= ") + number_text(*rule.max);
  return out;
}

std::string join_names(std::span<const char* const> names) {
  std::string out;
  for (const char* name : names) out += (out.empty() ? "" : " | ") + std::string(name);
  return out;
}

size_t read_enum(const YamlNode& node, const std::string& path, std::span<const char* const> names) {
  if (node.kind == YamlNode::Kind::kScalar)
    for (size_t i = 0; i < names.size(); ++i)
      if (node.text == names[i]) return i;
  fail(node, path, join_names(names));
}

void read_value(const YamlNode& node, const std::string& path, const Rule&, bool& value) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted || (node.text != "true" && node.text != "false")) fail(node, path, "true or false");
  value = node.text == "true";
}

void read_value(const YamlNode& node, const std::string& path, const Rule& rule, int64_t& value) {
  const char* end = node.text.data() + node.text.size();
  if (node.kind != YamlNode::Kind::kScalar || node.quoted || node.text.empty()) fail(node, path, describe_type("integer", rule));
  const auto [stop, error] = std::from_chars(node.text.data(), end, value);
  if (error != std::errc() || stop != end) fail(node, path, describe_type("integer", rule));
  check_bounds(node, path, rule, static_cast<double>(value), "integer");
}

void read_value(const YamlNode& node, const std::string& path, const Rule& rule, double& value) {
  const char* end = node.text.data() + node.text.size();
  if (node.kind != YamlNode::Kind::kScalar || node.quoted || node.text.empty()) fail(node, path, describe_type("number", rule));
  const auto [stop, error] = std::from_chars(node.text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) fail(node, path, describe_type("number", rule));
  check_bounds(node, path, rule, value, "number");
}

void read_value(const YamlNode& node, const std::string& path, const Rule& rule, std::string& value) {
  if (node.kind != YamlNode::Kind::kScalar) fail(node, path, describe_type("text", rule));
  if (!rule.choices.empty() && std::find(rule.choices.begin(), rule.choices.end(), node.text) == rule.choices.end()) {
    const std::string close = nearest(node.text, rule.choices);
    fail(node, path, describe_type("text", rule) + (close.empty() ? "" : "; did you mean `" + close + "`?"));
  }
  if (rule.required && node.text.empty()) fail(node, path, "text that is not empty");
  value = node.text;
}

void read_value(const YamlNode& node, const std::string& path, const Rule&, std::map<std::string, std::string>& value) {
  value.clear();
  if (node.kind == YamlNode::Kind::kNull) return;
  if (node.kind != YamlNode::Kind::kMap) fail(node, path, "a map of names");
  for (const YamlNode::Entry& entry : node.entries) {
    if (entry.value.kind != YamlNode::Kind::kScalar) fail(entry.value, path + "." + entry.key, "a name");
    value[entry.key] = entry.value.text;
  }
}

YamlNode write_value(bool value) { return YamlNode::scalar(value ? "true" : "false"); }
YamlNode write_value(int64_t value) { return YamlNode::scalar(std::to_string(value)); }
YamlNode write_value(double value) { return YamlNode::scalar(number_text(value)); }
YamlNode write_value(const std::string& value) { return YamlNode::scalar(value, true); }
YamlNode write_value(const std::map<std::string, std::string>& value) {
  if (value.empty()) return YamlNode::null();
  YamlNode map = YamlNode::map();
  for (const auto& [key, text] : value) map.entries.push_back({key, {}, YamlNode::scalar(text, true), ""});
  return map;
}

}  // namespace config_detail

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  int distance = 0;
  for (const std::string& candidate : candidates) {
    const int d = edit_distance(word, candidate);
    if (!best || d < distance) {
      best = &candidate;
      distance = d;
    }
  }
  return best ? *best : "";
}

void read_fields(const YamlNode& node, const std::string& path, std::span<const Field> fields) {
  if (node.kind == YamlNode::Kind::kNull) return;
  if (node.kind != YamlNode::Kind::kMap) config_detail::fail(node, path.empty() ? "config" : path, "a map of keys");
  for (const YamlNode::Entry& entry : node.entries) {
    const std::string full = path.empty() ? entry.key : path + "." + entry.key;
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == entry.key; });
    if (field == fields.end()) {
      std::vector<std::string> names;
      for (const Field& f : fields) names.push_back(f.name);
      const std::string origin = entry.origin.str();
      throw ConfigError(temper::str(origin, origin.empty() ? "" : ": ", "unknown key `", full, "`; did you mean `", path.empty() ? "" : path + ".",
                                    nearest(entry.key, names), "`?"));
    }
    field->read(entry.value, full);
  }
}

YamlNode write_fields(std::span<const Field> fields) {
  YamlNode map = YamlNode::map();
  for (const Field& field : fields) map.entries.push_back({field.name, {}, field.write(), ""});
  return map;
}

YamlNode read_config_arguments(std::span<const std::string> arguments) {
  YamlNode root = YamlNode::map();
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      if (argument.starts_with("-")) throw ConfigError("`" + argument + "`: expected a config file or dotted.key=value; see --help");
      std::string text;
      try {
        text = read_file(argument, size_t{16} << 20);
      } catch (const DataError& e) {
        throw ConfigError(e.what());
      }
      YamlNode file = parse_yaml(text, argument);
      if (file.kind == YamlNode::Kind::kNull) continue;
      if (file.kind != YamlNode::Kind::kMap) throw ConfigError(argument + ": expected a map of keys, found " + file.found());
      merge_yaml(root, std::move(file));
      continue;
    }
    const std::string source = "command line: " + argument;
    YamlNode value = parse_yaml(argument.substr(equals + 1), source, true);
    std::string_view path(argument.data(), equals);
    if (path.empty()) throw ConfigError(source + ": expected dotted.key=value");
    // Innermost key first, so that the nodes nest.
    while (!path.empty()) {
      const size_t dot = path.rfind('.');
      YamlNode map = YamlNode::map();
      map.origin = value.origin;
      const YamlOrigin origin = value.origin;
      map.entries.push_back({std::string(dot == std::string_view::npos ? path : path.substr(dot + 1)), origin, std::move(value), ""});
      value = std::move(map);
      path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
    }
    merge_yaml(root, std::move(value));
  }
  return root;
}

const YamlNode* find_key(const YamlNode& root, std::string_view dotted) {
  const YamlNode* node = &root;
  while (node && !dotted.empty()) {
    const size_t dot = dotted.find('.');
    node = node->find(dotted.substr(0, dot));
    dotted = dot == std::string_view::npos ? std::string_view() : dotted.substr(dot + 1);
  }
  return node;
}

namespace {
void collect(std::span<const Field> fields, const std::string& prefix, std::vector<std::array<std::string, 4>>& lines) {
  for (const Field& field : fields) {
    const std::string path = prefix + field.name;
    if (!field.children.empty() && !field.is_list) {
      collect(field.children, path + ".", lines);
      continue;
    }
    std::string value;
    if (prefix.find("[]") == std::string::npos) value = field.required ? "required" : dump_yaml(field.write());
    while (!value.empty() && value.back() == '\n') value.pop_back();
    lines.push_back({path, field.type, value, field.help});
    // Items have no values of their own to show, only names.
    if (field.is_list)
      for (const Field& item : field.children) lines.push_back({path + "[]." + item.name, item.type, "", item.help});
  }
}
}  // namespace

std::string describe_fields(std::span<const Field> fields) {
  std::vector<std::array<std::string, 4>> lines;
  collect(fields, "", lines);
  std::array<size_t, 3> width{};
  for (const auto& line : lines)
    for (size_t i = 0; i < 3; ++i) width[i] = std::max(width[i], std::min<size_t>(line[i].size(), 46));
  std::string out;
  for (const auto& line : lines) {
    for (size_t i = 0; i < 3; ++i) out += line[i] + std::string(line[i].size() < width[i] ? width[i] - line[i].size() + 2 : 2, ' ');
    out += line[3] + "\n";
  }
  return out;
}

std::string dump_fields(std::span<const Field> fields, bool with_help) {
  YamlNode root = write_fields(fields);
  if (with_help)
    for (size_t i = 0; i < fields.size(); ++i) root.entries[i].comment = fields[i].help;
  return dump_yaml(root);
}

}  // namespace temper
