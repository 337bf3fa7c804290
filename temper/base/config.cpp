#include "temper/base/config.h"

#include <algorithm>

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

constexpr size_t kMaxFileBytes = size_t{1} << 20;

// Levenshtein's distance, where a swap of neighbours counts one too.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

bool is_section(const Field& field) { return !field.children.empty() && !field.is_list; }

std::string join(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

// The path of the field called `name` anywhere in the schema, or "".
std::string find_elsewhere(std::span<const Field> fields, const std::string& name,
                           const std::string& path = {}) {
  for (const Field& field : fields) {
    if (field.name == name) return join(path, name);
    if (!is_section(field)) continue;
    std::string found = find_elsewhere(field.children, name, join(path, field.name));
    if (!found.empty()) return found;
  }
  return {};
}

[[noreturn]] void fail_unknown(const YamlNode::Entry& entry, const std::string& path,
                               std::span<const Field> fields, std::span<const Field> root) {
  const std::string key = YamlNode::scalar(entry.key).found();  // shortened
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  std::string meant = find_elsewhere(root, key);  // a right key at a wrong place
  if (meant.empty()) meant = join(path, nearest(key, names));
  throw ConfigError(str(entry.origin.str(), ": unknown key `", join(path, key), "`; did you mean `",
                        meant, "`?"));
}

// Nests a value: ("rl.beta", 0) becomes {rl: {beta: 0}}.
YamlNode nest(std::string_view dotted, YamlNode value) {
  while (true) {
    const size_t dot = dotted.rfind('.');
    const std::string key(dot == std::string_view::npos ? dotted : dotted.substr(dot + 1));
    YamlNode map = YamlNode::map();
    map.origin = value.origin;
    const YamlOrigin origin = value.origin;
    map.entries.push_back({key, origin, std::move(value), {}});
    value = std::move(map);
    if (dot == std::string_view::npos) return value;
    dotted = dotted.substr(0, dot);
  }
}

bool is_dotted_key(std::string_view text) {
  size_t part = 0, parts = 1;  // letters since the last dot
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c == '.' && part > 0)
      part = 0, ++parts;
    else if (letter || c == '_' || c == '-')
      ++part;
    else
      return false;
  }
  return part > 0 && parts <= 8;
}

YamlNode read_override(const std::string& argument) {
  const size_t equals = argument.find('=');
  std::string source = "command line: " + argument.substr(0, 200);
  std::replace(source.begin(), source.end(), '\n', ' ');  // a message is one line
  YamlNode value = parse_yaml(std::string_view(argument).substr(equals + 1), source, true);
  return nest(std::string_view(argument).substr(0, equals), std::move(value));
}

YamlNode read_config_file(const std::string& path) {
  std::string text;
  try {
    text = read_file(path, kMaxFileBytes);
  } catch (const DataError& e) {
    throw ConfigError(str(e.what(), "; expected a config file, or dotted.key=value"));
  }
  YamlNode file = parse_yaml(text, path);
  check<ConfigError>(file.kind == YamlNode::Kind::kMap || file.kind == YamlNode::Kind::kNull,
                     file.origin.str(), ": found ", file.found(),
                     ", expected keys and values (key: value)");
  return file;
}

void describe(std::span<const Field> fields, const std::string& path, std::string& out) {
  for (const Field& field : fields) {
    const std::string name = path + field.name;
    if (is_section(field)) {
      describe(field.children, name + ".", out);
      continue;
    }
    out += name + ": " + field.type;
    std::string value = dump_yaml(field.write());
    value.pop_back();
    out += field.required ? "  (required)" : value.empty() ? "" : "  (" + value + ")";
    out += "\n    " + field.help + "\n";
    if (field.is_list) describe(field.children, name + "[].", out);
  }
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const auto closer = [&](const std::string& a, const std::string& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  };
  const auto best = std::min_element(candidates.begin(), candidates.end(), closer);
  return best == candidates.end() ? "" : *best;
}

void read_fields(const YamlNode& node, const std::string& path, std::span<const Field> fields,
                 std::span<const Field> root) {
  if (root.empty()) root = fields;
  if (node.kind != YamlNode::Kind::kMap && node.kind != YamlNode::Kind::kNull)
    config_detail::fail(node, path.empty() ? "the config" : path, "a map of keys and values");
  for (const YamlNode::Entry& entry : node.entries) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& f) { return f.name == entry.key; });
    if (field == fields.end()) fail_unknown(entry, path, fields, root);
    if (is_section(*field))
      read_fields(entry.value, join(path, entry.key), field->children, root);
    else
      field->read(entry.value, join(path, entry.key));
  }
  for (const Field& field : fields)
    check<ConfigError>(!field.required || node.find(field.name),
                       path.empty() ? "" : node.origin.str() + ": ", join(path, field.name),
                       " is required: ", field.help);
}

YamlNode write_fields(std::span<const Field> fields, bool with_help) {
  YamlNode map = YamlNode::map();
  for (const Field& field : fields) {
    YamlNode value = is_section(field) ? write_fields(field.children, with_help) : field.write();
    map.entries.push_back({field.name, {}, std::move(value), with_help ? field.help : ""});
  }
  return map;
}

YamlNode read_config_arguments(std::span<const std::string> arguments) {
  YamlNode root = YamlNode::map();
  for (const std::string& argument : arguments) {
    check<ConfigError>(!argument.starts_with("-"), "`", argument,
                       "`: expected a config file or dotted.key=value");
    const size_t equals = argument.find('=');
    const bool is_override =
        equals != std::string::npos && is_dotted_key(std::string_view(argument).substr(0, equals));
    YamlNode over = is_override ? read_override(argument) : read_config_file(argument);
    if (over.kind == YamlNode::Kind::kMap) merge_yaml(root, std::move(over));
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

std::string describe_fields(std::span<const Field> fields) {
  std::string out;
  describe(fields, "", out);
  return out;
}

}  // namespace temper
