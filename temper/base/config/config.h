// Config structs. A struct has one list of its fields, and that list serves parsing, dumping,
// documentation and help:
//
//   struct OptimizerSection {
//     double learning_rate = 2e-5;
//     std::array<double, 2> betas = {0.9, 0.999};
//     void fields(Fields& f) {
//       f.add("learning_rate", learning_rate, "base rate", at_least(0));
//       f.add("betas", betas, "decay of AdamW's two moments", fraction());
//     }
//   };
//
// A member may be bool, int64_t, double, std::string, an enum with `enum_names`, std::optional
// (null) of these, a std::vector or std::array of these, a std::map of strings, another such
// struct, or a std::vector of them. All errors are ConfigErrors that name file and line, the key,
// what was found and what was expected.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "temper/base/config/yaml.h"

namespace temper {

// What kind of input file the text of a config key names.
enum class InputFiles {
  kNone,
  kRows,       // a file, directory, pattern or id (data/read/row_set.h)
  kBase,       // the model that a run begins with, by directory, .gguf file or id
  kAdapter,    // the adapter that it begins with
  kTokenizer,  // a directory of one
  kTemplate,   // a chat template
  kModel,      // another model
  kProgram,    // a word of a command: a file or not
  kOther,      // any other single file, such as a schema or a grammar
};

// What a value has to be beyond its type, and what it is to a run. For a list, bounds and choices
// apply to each item.
struct Rule {
  std::optional<double> min = {}, max = {};
  bool above_min = false, below_max = false;  // true: the bound itself is not allowed
  std::vector<std::string> choices = {};      // allowed values of a string; empty: any
  bool required = false;                      // no default value; a string must not be empty
  // For a list: a scalar is read as a list of one item, and as the item's first field if items are
  // structs; null is an empty list.
  bool lone = false;
  bool internal = false;                 // written by Temper itself; messages do not suggest it
  InputFiles reads = InputFiles::kNone;  // what this text, or each text of this list, names
  // The key, or its section, is no part of the digest of a run's settings (the manifest): it says
  // where and how a run computes, or what it writes, and changes results by rounding at most.
  bool outside_digest = false;
};
Rule at_least(double min);
Rule above(double min);
Rule between(double min, double max);
Rule fraction();  // [0, 1)
Rule one_of(std::vector<std::string> choices);
Rule required();
Rule one_or_list();
Rule internal();
Rule reads(InputFiles files, Rule also = {});
Rule outside_digest(Rule also = {});

// Specialise for an enum whose values count up from 0: the names in YAML, in order.
template <class Enum>
inline constexpr std::array<const char*, 0> enum_names = {};

class Fields;

template <class T>
concept ConfigStruct = requires(T value, Fields& fields) { value.fields(fields); };

// One field, bound to the member that holds its value.
struct Field {
  std::string name, help;
  std::string type;  // "integer >= 1", "adamw | sgd", "list of text or null"
  bool required = false;
  bool is_list = false;   // `children` are the fields of one item
  bool internal = false;  // as in Rule, and so are these:
  InputFiles reads = InputFiles::kNone;
  bool outside_digest = false;
  std::function<void(const YamlNode&, const std::string& path)> read;
  std::function<YamlNode()> write;
  std::vector<Field> children;  // fields of a struct, or of each item of a list of structs

  bool is_section() const { return !children.empty() && !is_list; }
};

// The fields of one struct, in the order of the dump.
class Fields {
 public:
  template <class T>
  void add(std::string name, T& value, std::string help, Rule rule = {});

  template <ConfigStruct T>
  static std::vector<Field> of(T& value) {
    Fields fields;
    value.fields(fields);
    return std::move(fields.list_);
  }

 private:
  std::vector<Field> list_;
};

// Reads a map (or null: nothing set) into the fields; fields without a key keep their values.
// `root` is the whole schema, searched for where a misplaced key belongs; by default `fields`.
// Throws ConfigError: one for all unknown keys, else for the first value that is wrong.
void read_fields(const YamlNode& node, const std::string& path, std::span<const Field> fields,
                 std::span<const Field> root = {});

// The current values as a map; with_help, each key with its help as a comment.
YamlNode write_fields(std::span<const Field> fields, bool with_help = false);

// Visits every text of `values`, as write_fields gives them, that names files of a run's input, by
// its key ("rewards[0].model").
void each_input(
    std::span<const Field> fields, const YamlNode& values,
    const std::function<void(const std::string& key, const std::string& text, InputFiles)>& visit);

// Files and dotted overrides in order, later ones win: {"run.yaml", "rl.beta=0", "data.eval=[a]"}.
// Sections of `schema` merge key by key. Every other value replaces the earlier one whole, lists
// and maps of text too: `data.columns={}` empties the map, while `data.columns.prompt=question`
// sets one of its keys. Without a schema all maps merge.
YamlNode read_config_arguments(std::span<const std::string> arguments,
                               std::span<const Field> schema = {});

// The node of "rl.beta", or nullptr where nobody wrote it.
const YamlNode* find_key(const YamlNode& root, std::string_view dotted);

// The values that differ between two resolved configs, in the order of `after`: "rl.beta: 0.04 ->
// 0.1", "data.train[0].path: a.jsonl -> b.jsonl", "rl.replay: (not set) -> x". Comments, quotes and
// the order of keys do not count; null, [] and {} are the same. Long values are shortened.
std::vector<std::string> changed_keys(const YamlNode& before, const YamlNode& after);

// Two lines for each field: path, type and default, then the help. Printed by `--help` and kept in
// the golden file of the schema.
std::string describe_fields(std::span<const Field> fields);

// The candidate that `word` is a misspelling or a part of: the one with the smallest edit distance
// (a swap of neighbours counts one). Empty where none is alike.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
// "; did you mean `x`?", or nothing where no candidate is alike.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

namespace config_detail {
// How the text that stands where a list is expected was probably meant; may be empty.
std::string list_hint(const YamlNode& node, const std::string& path);
void read_value(const YamlNode&, const std::string& path, const Rule&, bool& value);
void read_value(const YamlNode&, const std::string& path, const Rule&, int64_t& value);
void read_value(const YamlNode&, const std::string& path, const Rule&, double& value);
void read_value(const YamlNode&, const std::string& path, const Rule&, std::string& value);
void read_value(const YamlNode&, const std::string& path, const Rule&,
                std::map<std::string, std::string>& value);
YamlNode write_value(bool value);
YamlNode write_value(int64_t value);
YamlNode write_value(double value);
YamlNode write_value(const std::string& value);
YamlNode write_value(const std::map<std::string, std::string>& value);

// "integer >= 1", "number", "a | b".
std::string describe_type(const char* type, const Rule& rule);
[[noreturn]] void fail(const YamlNode& node, const std::string& path, const std::string& expected,
                       const std::string& hint = {});
size_t read_enum(const YamlNode&, const std::string& path, std::span<const char* const> names);
std::string join_names(std::span<const char* const> names);

template <class T>
struct Traits {  // bool, int64_t, double, std::string, map of strings
  static std::string type(const Rule& rule) {
    if constexpr (std::is_same_v<T, bool>)
      return "true | false";
    else if constexpr (std::is_same_v<T, int64_t>)
      return describe_type("integer", rule);
    else if constexpr (std::is_same_v<T, double>)
      return describe_type("number", rule);
    else if constexpr (std::is_same_v<T, std::string>)
      return describe_type("text", rule);
    else if constexpr (std::is_enum_v<T>)
      return join_names(enum_names<T>);
    else
      return "map of text";
  }
  static void read(const YamlNode& node, const std::string& path, const Rule& rule, T& value) {
    if constexpr (std::is_enum_v<T>)
      value = static_cast<T>(read_enum(node, path, enum_names<T>));
    else
      read_value(node, path, rule, value);
  }
  static YamlNode write(T& value) {
    if constexpr (std::is_enum_v<T>)
      return YamlNode::scalar(enum_names<T>[static_cast<size_t>(value)]);
    else
      return write_value(value);
  }
  static std::vector<Field> children() { return {}; }
};

template <ConfigStruct T>
struct Traits<T> {
  static std::string type(const Rule&) { return "maps"; }
  static void read(const YamlNode& node, const std::string& path, const Rule& rule, T& value) {
    const std::vector<Field> fields = Fields::of(value);
    if (rule.lone && node.kind == YamlNode::Kind::kScalar)
      return fields.front().read(node, path + "." + fields.front().name);
    read_fields(node, path, fields);
  }
  static YamlNode write(T& value) { return write_fields(Fields::of(value)); }
  static std::vector<Field> children() {
    static T sample{};  // never written; its fields show the defaults of an item
    return Fields::of(sample);
  }
};

template <class T>
struct Traits<std::optional<T>> {
  static std::string type(const Rule& rule) { return Traits<T>::type(rule) + " or null"; }
  static void read(const YamlNode& node, const std::string& path, const Rule& rule,
                   std::optional<T>& value) {
    value.reset();
    if (node.kind != YamlNode::Kind::kNull) Traits<T>::read(node, path, rule, value.emplace());
  }
  static YamlNode write(std::optional<T>& value) {
    return value ? Traits<T>::write(*value) : YamlNode::null();
  }
  static std::vector<Field> children() { return {}; }
};

template <class List>
struct ListTraits {
  using Item = typename List::value_type;
  static std::string type(const Rule& rule) {
    return std::string(rule.lone ? "one or a list of " : "list of ") + Traits<Item>::type(rule);
  }
  static YamlNode write(List& list) {
    std::vector<YamlNode> items;
    for (Item& item : list) items.push_back(Traits<Item>::write(item));
    return YamlNode::list(std::move(items));
  }
  static std::vector<Field> children() { return Traits<Item>::children(); }
};

template <class T>
struct Traits<std::vector<T>> : ListTraits<std::vector<T>> {
  static void read(const YamlNode& node, const std::string& path, const Rule& rule,
                   std::vector<T>& value) {
    value.clear();
    if (rule.lone && node.kind == YamlNode::Kind::kNull) return;
    if (rule.lone && node.kind != YamlNode::Kind::kList)
      return Traits<T>::read(node, path, rule, value.emplace_back());
    if (node.kind != YamlNode::Kind::kList) fail(node, path, "a list", list_hint(node, path));
    for (size_t i = 0; i < node.items.size(); ++i)
      Traits<T>::read(node.items[i], path + "[" + std::to_string(i) + "]", rule,
                      value.emplace_back());
  }
};

template <class T, size_t N>
struct Traits<std::array<T, N>> : ListTraits<std::array<T, N>> {
  static void read(const YamlNode& node, const std::string& path, const Rule& rule,
                   std::array<T, N>& value) {
    if (node.kind != YamlNode::Kind::kList || node.items.size() != N)
      fail(node, path, "a list of " + std::to_string(N));
    for (size_t i = 0; i < N; ++i)
      Traits<T>::read(node.items[i], path + "[" + std::to_string(i) + "]", rule, value[i]);
  }
};
}  // namespace config_detail

template <class T>
void Fields::add(std::string name, T& value, std::string help, Rule rule) {
  using Traits = config_detail::Traits<T>;
  Field field;
  field.name = std::move(name);
  field.help = std::move(help);
  field.type = Traits::type(rule);
  field.required = rule.required;
  field.internal = rule.internal;
  field.reads = rule.reads;
  field.outside_digest = rule.outside_digest;
  if constexpr (ConfigStruct<T>) {
    field.children = Fields::of(value);
  } else {
    field.children = Traits::children();
    field.is_list = !field.children.empty();
  }
  T* const at = &value;
  field.read = [at, rule](const YamlNode& node, const std::string& path) {
    Traits::read(node, path, rule, *at);
  };
  field.write = [at] { return Traits::write(*at); };
  list_.push_back(std::move(field));
}

}  // namespace temper
