// Flags of the working verbs: fields as a config has them (base/config/config.h), with the same
// types, rules, help and hints. A flag `--max-batch 8` is the key `max_batch: 8` of a YAML file,
// which verbs without other words take, too: `temper serve serve.yaml --port 0`.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/config/config.h"

namespace temper::cli {

using Arguments = std::vector<std::string>;

struct Flag : Field {                // named "--max-batch"; "RUN": words that stand behind no flag
  std::vector<std::string> choices;  // that completion offers
  std::string words;     // "IN": it takes words that stand behind no flag, too; empty: it does not
  bool several = false;  // of a list or a map: takes the words that follow, too
  bool given = false;
  std::vector<std::string> texts;  // as given

  bool takes_map() const { return type.starts_with("map"); }
  bool takes_list() const;
  bool takes_value() const { return type != "true | false"; }
};

class Flags {
 public:
  explicit Flags(std::string command) : command_(std::move(command)) {}  // "temper data stats"

  // What the verb does, above the flags in --help.
  void about(std::string text) { about_ = std::move(text); }
  // The reference is good until the next call. A list is given by several flags, or, where
  // `several` is set, by several words.
  template <class T>
  Flag& add(const std::string& name, T& value, const std::string& help, const Rule& rule = {}) {
    struct {
      const std::string& name;
      T& value;
      const std::string& help;
      const Rule& rule;
      void fields(Fields& f) { f.add(name, value, help, rule); }
    } one{name, value, help, rule};
    return add(std::move(Fields::of(one)[0]));
  }
  void needs(const std::string& flag, const std::string& other);
  void excludes(const std::string& flag, std::initializer_list<const char*> others);
  // Called when all flags are read, in the order of the calls.
  void then(std::function<void()> use) { uses_.push_back(std::move(use)); }

  // Reads a command line. False: it asked for help, which was printed. Throws ConfigError.
  bool read(const Arguments& arguments);
  bool given(std::string_view name) const;

  const std::vector<Flag>& list() const { return list_; }
  std::string help() const;

 private:
  Flag& add(Field field);
  Flag& find(const std::string& name);
  bool take(const Arguments& arguments, Arguments& words);
  Arguments place(const Arguments& words);
  void read_files(const Arguments& files);
  void read_texts();

  std::string command_, about_;
  std::vector<Flag> list_;
  std::vector<std::function<void()>> uses_;
};

// The choices of a field's type, "adamw | sgd"; none where it is no choice.
std::vector<std::string> choices_of(const std::string& type);

}  // namespace temper::cli
