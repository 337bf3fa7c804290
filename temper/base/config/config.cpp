#include "temper/base/config/config.h"

#include <algorithm>

#include "temper/base/config/config_synonyms.h"
#include "temper/base/error.h"

namespace temper {

Rule at_least(double min) { return {.min = min}; }
Rule above(double min) { return {.min = min, .above_min = true}; }
Rule between(double min, double max) { return {.min = min, .max = max}; }
Rule fraction() { return {.min = 0, .max = 1, .below_max = true}; }
Rule one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
Rule required() { return {.required = true}; }
Rule one_or_list() { return {.lone = true}; }
Rule internal() { return {.internal = true}; }
Rule reads(InputFiles files, Rule also) {
  also.reads = files;
  return also;
}
Rule outside_digest(Rule also) {
  also.outside_digest = true;
  return also;
}

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

std::string list_of(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

std::string synonym_text(const std::string& key, const KeySynonym& synonym, const YamlNode& value) {
  const std::string known = synonym.key.empty()
                                ? std::string("there is no such key here")
                                : str("`", key, "` is called ", synonym.key, " here");
  const bool off = value.kind == YamlNode::Kind::kScalar && !value.quoted && value.text == "false";
  std::string_view note = off && !synonym.off.empty() ? synonym.off : synonym.note;
  // A note that says how to switch something on is none for who leaves it off.
  if (off && synonym.off.empty() && note.starts_with("write "))
    note = "false is what a run does without it: leave it out";
  return note.empty() ? known : str(known, "; ", note);
}

// The hint for an unknown section: this config's name of the first value below it, as for
// "rollout.n", then "n", in actor_rollout_ref.rollout.n. Empty if no synonym is known.
std::string hint_for_section(const YamlNode::Entry& section) {
  std::string path = section.key;
  const YamlNode* node = &section.value;
  while (node->kind == YamlNode::Kind::kMap && !node->entries.empty()) {
    const YamlNode::Entry& entry = node->entries.front();
    path = join(path, entry.key);
    const KeySynonym* synonym = find_key_synonym(path);
    node = &entry.value;
    if (synonym && node->kind != YamlNode::Kind::kMap) return synonym_text(path, *synonym, *node);
  }
  return {};
}

// The hint for an unknown key: the same key in another section, the key that other programs call
// so, or the one with the nearest spelling.
std::string hint_for(const std::string& key, const YamlNode& value, const std::string& path,
                     std::span<const Field> fields, std::span<const Field> root) {
  std::vector<std::string> places;
  find_elsewhere(root, key, "", places);
  if (places.empty()) {
    if (const KeySynonym* synonym = find_key_synonym(join(path, key)))
      return synonym_text(key, *synonym, value);
    std::vector<std::string> names;
    for (const Field& field : fields)
      if (!field.internal) names.push_back(field.name);
    const std::string alike = nearest(key, names);
    if (alike.empty()) return "expected one of " + list_of(names);
    places.push_back(join(path, alike));
  }
  std::string meant;
  for (const std::string& place : places)
    meant += str(meant.empty() ? "" : " or ", "`", place, "`");
  return str("did you mean ", meant, "?");
}

const Field* field_named(std::span<const Field> fields, const std::string& name) {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

std::string unknown_key(const YamlNode::Entry& entry, const std::string& path,
                        std::span<const Field> fields, std::span<const Field> root) {
  const std::string key = YamlNode::scalar(entry.key).found();  // shortened
  const std::string of_section = hint_for_section(entry);
  return str(entry.origin.str(), ": unknown key `", join(path, key), "`; ",
             of_section.empty() ? hint_for(key, entry.value, path, fields, root) : of_section);
}

// A message for each unknown key of the node and of the sections below it.
void find_unknown(const YamlNode& node, const std::string& path, std::span<const Field> fields,
                  std::span<const Field> root, std::vector<std::string>& messages) {
  for (const YamlNode::Entry& entry : node.entries) {
    const Field* field = field_named(fields, entry.key);
    if (!field)
      messages.push_back(unknown_key(entry, path, fields, root));
    else if (field->is_section())
      find_unknown(entry.value, join(path, entry.key), field->children, root, messages);
  }
}

constexpr size_t kMostUnknownKeys = 100;  // number of unknown keys that one error message lists

void check_known(const YamlNode& node, const std::string& path, std::span<const Field> fields,
                 std::span<const Field> root) {
  std::vector<std::string> messages;
  find_unknown(node, path, fields, root, messages);
  if (messages.empty()) return;
  std::string all;
  for (size_t i = 0; i < messages.size() && i < kMostUnknownKeys; ++i)
    all += (i ? "\n  " : "") + messages[i];
  if (messages.size() > kMostUnknownKeys)
    all += str("\n  and ", messages.size() - kMostUnknownKeys, " more unknown keys");
  throw ConfigError(all);
}

// A value where a section stands is often meant for the section's first key, `model: DIR`, an
// address for its url.
[[noreturn]] void fail_no_section(const YamlNode& node, const std::string& path,
                                  std::span<const Field> fields) {
  std::string hint;
  if (node.kind == YamlNode::Kind::kScalar && !path.empty() && !fields.empty()) {
    const Field* meant = fields[0].type.starts_with("integer") ? nullptr : &fields[0];
    if (node.text.find("://") != std::string::npos)
      for (const char* name : {"url", "urls"})
        if (const Field* const of_address = field_named(fields, name)) meant = of_address;
    if (meant) hint = str("did you mean `", join(path, meant->name), "`?");
  }
  config_detail::fail(node, path.empty() ? "the config" : path, "a map of keys and values", hint);
}

void read_known(const YamlNode& node, const std::string& path, std::span<const Field> fields) {
  if (node.kind != YamlNode::Kind::kMap && node.kind != YamlNode::Kind::kNull)
    fail_no_section(node, path, fields);
  for (const YamlNode::Entry& entry : node.entries) {
    const Field& field = *field_named(fields, entry.key);
    const std::string name = join(path, entry.key);
    if (field.is_section())
      read_known(entry.value, name, field.children);
    else
      field.read(entry.value, name);
  }
  for (const Field& field : fields)
    check<ConfigError>(!field.required || node.find(field.name),
                       path.empty() ? "" : node.origin.str() + ": ", join(path, field.name),
                       " is required: ", field.help);
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
  // `candidate` may be an abbreviation or an extension of the word: that counts as one edit.
  const auto distance = [&](const std::string& candidate) {
    const bool part = !word.empty() && !candidate.empty() &&
                      (candidate.starts_with(word) || word.starts_with(candidate));
    return part ? std::min<size_t>(1, edit_distance(word, candidate))
                : edit_distance(word, candidate);
  };
  const auto closer = [&](const std::string& a, const std::string& b) {
    return distance(a) < distance(b);
  };
  const auto best = std::min_element(candidates.begin(), candidates.end(), closer);
  // Two words of which more than a third differs are two words.
  const size_t most = std::max<size_t>(1, (word.size() + 1) / 3);
  return best == candidates.end() || distance(*best) > most ? "" : *best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string found = nearest(word, candidates);
  return found.empty() ? "" : "; did you mean `" + found + "`?";
}

void read_fields(const YamlNode& node, const std::string& path, std::span<const Field> fields,
                 std::span<const Field> root) {
  check_known(node, path, fields, root.empty() ? fields : root);
  read_known(node, path, fields);
}

namespace {

using VisitInput =
    std::function<void(const std::string& key, const std::string& text, InputFiles files)>;

void visit_texts(const Field& field, const YamlNode& value, const std::string& key,
                 const VisitInput& visit) {
  if (value.kind == YamlNode::Kind::kScalar && !value.text.empty())
    visit(key, value.text, field.reads);
  for (size_t i = 0; i < value.items.size(); ++i)
    visit_texts(field, value.items[i], str(key, "[", i, "]"), visit);
}

void visit_inputs(std::span<const Field> fields, const YamlNode& values, const std::string& path,
                  const VisitInput& visit) {
  for (const Field& field : fields) {
    const YamlNode* value = find_key(values, field.name);
    if (!value) continue;
    const std::string key = join(path, field.name);
    if (field.is_section()) visit_inputs(field.children, *value, key, visit);
    if (field.is_list)
      for (size_t i = 0; i < value->items.size(); ++i)
        visit_inputs(field.children, value->items[i], str(key, "[", i, "]"), visit);
    if (field.reads != InputFiles::kNone) visit_texts(field, *value, key, visit);
  }
}

}  // namespace

void each_input(std::span<const Field> fields, const YamlNode& values, const VisitInput& visit) {
  visit_inputs(fields, values, "", visit);
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
