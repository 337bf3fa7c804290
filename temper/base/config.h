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

#include "temper/base/yaml.h"

namespace temper {

// What a value may be, beyond its type. For a list the bounds and choices are those of each item.
struct Rule {
  std::optional<double> min, max;
  bool above_min = false, below_max = false;  // the bound itself is out
  std::vector<std::string> choices;           // of a string
  bool required = false;                      // no default; of a string: not empty
  bool lone = false;  // of a list: a scalar stands for a list of one, of a struct for its first
                      // field; null: empty
};
Rule at_least(double min);
Rule above(double min);
Rule between(double min, double max);
Rule fraction();  // [0, 1)
Rule one_of(std::vector<std::string> choices);
Rule required();
Rule one_or_list();

// Specialise for an enum whose values count up from 0: the names in YAML, in order.
template <class Enum>
inline constexpr std::array<const char*, 0> enum_names = {};

class Fields;

template <class T>
concept ConfigStruct = requires(T value, Fields& fields) {
  value.fields(fields);
};

// One field, bound to the member that holds its value.
struct Field {
  std::string name, help;
  std::string type;  // "integer >= 1", "adamw | sgd", "list of text or null"
  bool required = false;
  bool is_list = false;  // children are those of one item
  std::function<void(const YamlNode&, const std::string& path)> read;
  std::function<YamlNode()> write;
  std::vector<Field> children;  // of a struct, or of the items of a list of structs
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
// `root` is the whole schema, searched for where a misplaced key belongs.
void read_fields(const YamlNode& node, const std::string& path, std::span<const Field> fields);
YamlNode write_fields(std::span<const Field> fields);

// Files and dotted overrides in order, later ones win: {"run.yaml", "rl.beta=0", "rewards=[{name:
// gsm8k}]"}.
YamlNode read_config_arguments(std::span<const std::string> arguments);

// The node of "rl.beta", or nullptr where nobody wrote it.
const YamlNode* find_key(const YamlNode& root, std::string_view dotted);

// A line a field: path, type, default, help, in aligned columns. What the golden file holds and
// `--help` prints.
std::string describe_fields(std::span<const Field> fields);

// YAML of the current values, each key with its help as a comment if wanted.
std::string dump_fields(std::span<const Field> fields, bool with_help = false);

// The candidate with the smallest edit distance (a swap of neighbours counts one), empty if there
// are none.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

namespace config_detail {
void read_value(const YamlNode&, const std::string& path, const Rule&, bool& value);
void read_value(const YamlNode&, const std::string& path, const Rule&, int64_t& value);
void read_value(const YamlNode&, const std::string& path, const Rule&, double& value);
void read_value(const YamlNode&, const std::string& path, const Rule&, std::string& value);
void read_value(const YamlNode&, const std::string& path, const Rule&,
                std::map<std::string, std::string>& value);
}  // namespace config_detail

}  // namespace temper
