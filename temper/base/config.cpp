#include "temper/base/config.h"

#include <algorithm>

#include "temper/base/config_synonyms.h"
#include "temper/base/error.h"

namespace temper {

Rule at_least(double min) { return {.min = min}; }
Rule above(double min) { return {.min = min, .above_min = true}; }
Rule between(double min, double max) { return {.min = min, .max = max}; }
Rule fraction() { return {.min = 0, .max = 1, .below_max = true}; }
Rule one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
Rule required() { return {.required = true}; }
Rule one_or_list() { return {.lone = true}; }

namespace {

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

std::string join(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

// The paths of all fields called `name`, anywhere in the schema.
void find_elsewhere(std::span<const Field> fields, const std::string& name, const std::string& path,
                    std::vector<std::string>& found) {
  for (const Field& field : fields) {
    if (field.name == name) found.push_back(join(path, name));
    if (field.is_section()) find_elsewhere(field.children, name, join(path, field.name), found);
  }
}

// What the writer of an unknown key may have meant: a key that stands elsewhere, one that other
// programs call so, or the one that is spelt most alike.
std::string hint_for(const std::string& key, const std::string& path, std::span<const Field> fields,
                     std::span<const Field> root) {
  std::vector<std::string> places;
  find_elsewhere(root, key, "", places);
  if (places.empty()) {
    if (const KeySynonym* synonym = find_key_synonym(key)) {
      const std::string known = synonym->key.empty()
                                    ? "there is no such key here"
                                    : str("`", key, "` is called ", synonym->key, " here");
      return synonym->note.empty() ? known : str(known, "; ", synonym->note);
    }
    std::vector<std::string> names;
    for (const Field& field : fields) names.push_back(field.name);
    places.push_back(join(path, nearest(key, names)));
  }
  std::string meant;
  for (const std::string& place : places)
    meant += str(meant.empty() ? "" : " or ", "`", place, "`");
  return str("did you mean ", meant, "?");
}

[[noreturn]] void fail_unknown(const YamlNode::Entry& entry, const std::string& path,
                               std::span<const Field> fields, std::span<const Field> root) {
  const std::string key = YamlNode::scalar(entry.key).found();  // shortened
  throw ConfigError(str(entry.origin.str(), ": unknown key `", join(path, key), "`; ",
                        hint_for(key, path, fields, root)));
}

// A value where a section stands is often meant for the section's first key: `model: DIR`.
[[noreturn]] void fail_no_section(const YamlNode& node, const std::string& path,
                                  std::span<const Field> fields) {
  std::string hint;
  if (node.kind == YamlNode::Kind::kScalar && !path.empty() && !fields.empty() &&
      !fields[0].type.starts_with("integer"))
    hint = str("did you mean `", join(path, fields[0].name), "`?");
  config_detail::fail(node, path.empty() ? "the config" : path, "a map of keys and values", hint);
}

void describe(std::span<const Field> fields, const std::string& path, std::string& out) {
  for (const Field& field : fields) {
    const std::string name = path + field.name;
    if (field.is_section()) {
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
    fail_no_section(node, path, fields);
  for (const YamlNode::Entry& entry : node.entries) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& f) { return f.name == entry.key; });
    if (field == fields.end()) fail_unknown(entry, path, fields, root);
    if (field->is_section())
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
    YamlNode value = field.is_section() ? write_fields(field.children, with_help) : field.write();
    map.entries.push_back({field.name, {}, std::move(value), with_help ? field.help : ""});
  }
  return map;
}

std::string describe_fields(std::span<const Field> fields) {
  std::string out;
  describe(fields, "", out);
  return out;
}

}  // namespace temper
