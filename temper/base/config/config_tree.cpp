// Configs as trees: files and overrides laid upon one another, and what two of them differ in.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "temper/base/config/config.h"
#include "temper/base/config/row_names.h"
#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxShown = 100;  // characters of a value that a message shows

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

// How many maps nest() has wrapped around the value, or 0: the argument is no override.
size_t override_levels(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return 0;
  const std::string_view key = std::string_view(argument).substr(0, equals);
  if (!is_dotted_key(key)) return 0;
  return 1 + static_cast<size_t>(std::count(key.begin(), key.end(), '.'));
}

// The field or section of a key; null: the schema has none.
const Field* find_field(std::span<const Field> schema, std::string_view dotted) {
  const size_t dot = dotted.find('.');
  const auto field = std::find_if(schema.begin(), schema.end(),
                                  [&](const Field& f) { return f.name == dotted.substr(0, dot); });
  if (field == schema.end()) return nullptr;
  if (dot == std::string_view::npos) return &*field;
  return field->is_section() ? find_field(field->children, dotted.substr(dot + 1)) : nullptr;
}

// Whether the key holds one plain text: what stands there is no YAML list or map, whatever brackets
// it has.
bool takes_text(std::span<const Field> schema, std::string_view dotted) {
  const Field* field = find_field(schema, dotted);
  return field && (field->type == "text" || field->type == "text or null");
}

// What an override without a value may be given instead, as messages suggest it: "KEY=null for
// none" for a key that may be null.
std::string value_advice(std::span<const Field> schema, std::string_view key) {
  const Field* field = find_field(schema, key);
  if (!field) return str(key, "=null for none, or ", key, "='\"\"' for empty text");
  if (field->is_section()) return str(key, ".", field->children.front().name, "=VALUE");
  if (field->type.ends_with(" or null")) return str(key, "=null for none");
  const bool may_be_empty = field->type == "text" && !field->required;
  return str(key, "=VALUE (", field->type, ")",
             may_be_empty ? str(", or ", key, "='\"\"' for empty text") : "");
}

// Whether a text is plainly meant as it is: nobody began to quote it, and YAML can hold it.
bool is_unquoted_text(std::string_view text) {
  return !text.empty() && text[0] != '"' && text[0] != '\'' &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c >= ' ' && c != 0x7f; });
}

// How a shell is given the text as YAML text; empty where that would take more quotes than help.
std::string quoted_example(std::string_view key, std::string_view text) {
  if (!is_unquoted_text(text) || text.find('\'') != std::string_view::npos) return {};
  std::string value = dump_yaml(YamlNode::scalar(std::string(text), true));
  if (value.ends_with('\n')) value.pop_back();
  return str(key, "='", value, "'");
}

// The value of an override. Text that YAML would read as something else is the value of a key that
// holds text; without a schema nobody knows, and whoever reads the tree with one will say so.
YamlNode read_value(std::string_view key, std::string_view text, const std::string& source,
                    std::span<const Field> schema) {
  const auto as_text = [&] {
    YamlNode value = YamlNode::scalar(std::string(text), true);
    value.origin.source = std::make_shared<const std::string>(source);
    return value;
  };
  const bool is_text = takes_text(schema, key);
  try {
    YamlNode value = parse_yaml(text, source, true);
    const bool nested = value.kind == YamlNode::Kind::kList || value.kind == YamlNode::Kind::kMap;
    // A tag, a directive or a comment, of which nothing is left.
    const bool vanishes = value.kind == YamlNode::Kind::kNull && text.find_first_of("!%#") == 0;
    return is_text && (nested || vanishes) ? as_text() : value;
  } catch (const ConfigError& e) {
    if (is_unquoted_text(text) && (is_text || schema.empty())) return as_text();
    const std::string found = e.what(), example = quoted_example(key, text);
    // Text after a list or a map reads as a second document: the whole was meant as text. An
    // unclosed list was not.
    const bool several = found.find(": a second YAML document") != std::string::npos;
    const bool syntax =
        found.find(": not valid YAML") != std::string::npos && text.find_first_of("[{") != 0;
    if (!(several || syntax) || example.empty()) throw;
    throw ConfigError(str(several ? source + ": not one YAML value" : found,
                          "; text that YAML would read otherwise must be quoted: ", example));
  }
}

YamlNode read_override(const std::string& argument, std::span<const Field> schema) {
  const size_t equals = argument.find('=');
  std::string source = "command line: " + argument.substr(0, 200);
  std::replace(source.begin(), source.end(), '\n', ' ');  // a message is one line
  const std::string_view key = std::string_view(argument).substr(0, equals),
                         text = std::string_view(argument).substr(equals + 1);
  // Often a variable of the shell that is not set: no reason to fall back to a default.
  check<ConfigError>(text.find_first_not_of(" \t") != std::string_view::npos, source,
                     ": found no value; write ", value_advice(schema, key));
  return nest(key, read_value(key, text, source, schema));
}

YamlNode read_config_file(const std::string& path) {
  // Rows in place of a config are often meant as the data of the run.
  check<ConfigError>(!is_row_name(std::filesystem::path(path).filename().string()), path,
                     ": found a file of rows, expected a config file or dotted.key=value; write "
                     "data.train=",
                     path);
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

// The first `levels` maps of `over` are a path to a value and always merge; below, sections merge
// and every other value replaces. Without a schema all maps merge.
void merge(YamlNode& base, YamlNode over, std::span<const Field> schema, bool has_schema,
           size_t levels) {
  if (base.kind != YamlNode::Kind::kMap || over.kind != YamlNode::Kind::kMap) {
    base = std::move(over);
    return;
  }
  for (YamlNode::Entry& entry : over.entries) {
    const auto field = std::find_if(schema.begin(), schema.end(),
                                    [&](const Field& f) { return f.name == entry.key; });
    const bool section = field != schema.end() && field->is_section();
    YamlNode* value = base.find(entry.key);
    if (!value)
      base.entries.push_back(std::move(entry));
    else if (section || levels > 1 || !has_schema)
      merge(*value, std::move(entry.value),
            section ? std::span<const Field>(field->children) : std::span<const Field>(),
            has_schema, levels > 0 ? levels - 1 : 0);
    else
      *value = std::move(entry.value);
  }
}

bool is_empty(const YamlNode& node) {
  return node.kind != YamlNode::Kind::kScalar && node.items.empty() && node.entries.empty();
}

bool equal(const YamlNode& a, const YamlNode& b) {
  if (is_empty(a) || is_empty(b)) return is_empty(a) && is_empty(b);
  if (a.kind != b.kind || a.text != b.text || a.items.size() != b.items.size() ||
      a.entries.size() != b.entries.size())
    return false;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!equal(a.items[i], b.items[i])) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const YamlNode::Entry& entry) {
    const YamlNode* other = b.find(entry.key);
    return other && equal(entry.value, *other);
  });
}

std::string shown(const YamlNode* node) {
  if (!node) return "(not set)";
  std::string text = on_one_line(*node);
  if (text.size() <= kMaxShown) return text;
  size_t end = kMaxShown - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// Null: not there.
void compare(const YamlNode* before, const YamlNode* after, const std::string& path,
             std::vector<std::string>& changes) {
  using Kind = YamlNode::Kind;
  if (before && after && equal(*before, *after)) return;
  if (before && after && before->kind == Kind::kMap && after->kind == Kind::kMap) {
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const YamlNode::Entry& entry : after->entries)
      compare(before->find(entry.key), &entry.value, prefix + entry.key, changes);
    for (const YamlNode::Entry& entry : before->entries)
      if (!after->find(entry.key)) compare(&entry.value, nullptr, prefix + entry.key, changes);
    return;
  }
  const auto of_maps = [](const YamlNode* node) {
    return node && node->kind == Kind::kList && !node->items.empty() &&
           std::all_of(node->items.begin(), node->items.end(),
                       [](const YamlNode& item) { return item.kind == Kind::kMap; });
  };
  if (of_maps(before) && of_maps(after)) {
    const auto item = [](const YamlNode* list, size_t i) {
      return i < list->items.size() ? &list->items[i] : nullptr;
    };
    for (size_t i = 0; i < std::max(before->items.size(), after->items.size()); ++i)
      compare(item(before, i), item(after, i), str(path, "[", i, "]"), changes);
    return;
  }
  changes.push_back(str(path, ": ", shown(before), " -> ", shown(after)));
}

}  // namespace

YamlNode read_config_arguments(std::span<const std::string> arguments,
                               std::span<const Field> schema) {
  YamlNode root = YamlNode::map();
  for (const std::string& argument : arguments) {
    check<ConfigError>(
        !argument.starts_with("-"), "`", argument,
        "`: expected a config file or dotted.key=value; settings are not flags: write "
        "train.epochs=3 for --epochs 3 (--help lists all keys)");
    std::error_code none;
    check<ConfigError>(!find_field(schema, argument) || std::filesystem::exists(argument, none),
                       "`", argument, "`: a key without a value; write ", argument, "=VALUE");
    const size_t levels = override_levels(argument);
    YamlNode over = levels > 0 ? read_override(argument, schema) : read_config_file(argument);
    if (over.kind == YamlNode::Kind::kMap)
      merge(root, std::move(over), schema, !schema.empty(), levels);
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

std::vector<std::string> changed_keys(const YamlNode& before, const YamlNode& after) {
  std::vector<std::string> changes;
  compare(&before, &after, "", changes);
  return changes;
}

}  // namespace temper
