#include "temper/cli/parts/flags.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <ranges>

#include "temper/base/config/config_synonyms.h"
#include "temper/base/error.h"

namespace temper::cli {
namespace {

using namespace std::string_view_literals;

bool is_flag(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

bool names_yaml(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml");
}

// "max_batch" of "--max-batch", and back.
std::string key_of(const std::string& flag) {
  std::string key = flag.substr(flag.find_first_not_of('-'));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}
std::string flag_of(std::string_view key) {
  std::string flag(key.substr(key.rfind('.') + 1));
  std::replace(flag.begin(), flag.end(), '_', '-');
  return "--" + flag;
}

// What was given, as a config would hold it; messages name the flag, and no place.
YamlNode node_of(const Flag& flag) {
  static const auto nowhere = std::make_shared<const std::string>();
  YamlNode list = YamlNode::list();
  list.origin.source = nowhere;
  std::string all;
  for (const std::string& text : flag.texts) {
    all += (all.empty() ? "" : " ") + text;
    list.items.push_back(YamlNode::scalar(text));
    list.items.back().origin.source = nowhere;
  }
  // Words of {prompt: question}, which a shell takes apart at the blank.
  if (flag.takes_map() && all.starts_with('{')) return parse_yaml(all, flag.name, true);
  return flag.takes_list() ? list : list.items[0];
}

// Whether a map goes on with a word: NAME=VALUE, or within {NAME: VALUE}.
bool goes_on(const std::vector<std::string>& texts, const std::string& word) {
  const bool open = std::ranges::any_of(texts, [](const auto& t) { return t.starts_with('{'); });
  return (open && !texts.back().ends_with('}')) || word.find('=') != std::string::npos;
}

// What a flag is where it is not given; empty: nothing that says much.
std::string default_of(const Flag& flag) {
  const YamlNode value = flag.write();
  const std::string text = value.kind == YamlNode::Kind::kScalar ? value.text : on_one_line(value);
  const bool says_nothing = text == "false" || text == "null" || text == "[]";
  return says_nothing ? "" : text;
}

}  // namespace

std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> choices;
  if (type.find(" | ") == type.npos || type.find("list") != type.npos) return choices;
  const size_t end = type.find(" or null");
  for (const auto part : std::views::split(std::string_view(type).substr(0, end), " | "sv))
    choices.emplace_back(part.begin(), part.end());
  if (end != type.npos) choices.emplace_back("null");
  return choices;
}

bool Flag::takes_list() const { return takes_map() || type.find("list of ") != std::string::npos; }

Flag& Flags::add(Field field) {
  Flag& flag = list_.emplace_back();
  static_cast<Field&>(flag) = std::move(field);
  if (flag.type.ends_with(" or null")) flag.type.resize(flag.type.rfind(" or null"));
  if (flag.takes_value()) flag.choices = choices_of(flag.type);
  if (!is_flag(flag.name)) flag.words = flag.name;
  return flag;
}

void Flags::needs(const std::string& flag, const std::string& other) {
  then([this, flag, other] {
    check<ConfigError>(!given(flag) || given(other), flag, " requires ", other);
  });
}

void Flags::excludes(const std::string& flag, std::initializer_list<const char*> others) {
  for (const std::string other : others)
    then([this, flag, other] {
      check<ConfigError>(!given(flag) || !given(other), flag, " excludes ", other);
    });
}

bool Flags::given(std::string_view name) const {
  return std::ranges::any_of(list_, [&](const Flag& f) { return f.name == name && f.given; });
}

Flag& Flags::find(const std::string& name) {
  std::vector<std::string> names{"--help"};
  for (Flag& flag : list_) {
    if (flag.name == name && is_flag(name)) return flag;
    names.push_back(flag.name);
  }
  const KeySynonym* synonym = find_key_synonym(key_of(name));
  const std::string here = synonym && !synonym->key.empty() ? flag_of(synonym->key) : "";
  const bool known = std::ranges::find(names, here) != names.end();
  throw ConfigError(str("unknown flag `", name, "`", did_you_mean(known ? here : name, names)));
}

// Sorts the arguments into flags and words. False: they ask for help.
bool Flags::take(const Arguments& arguments, Arguments& words) {
  for (size_t i = 0; i < arguments.size();) {
    const std::string& word = arguments[i++];
    if (word == "--") {
      words.insert(words.end(), arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
      break;
    }
    if (word == "--help" || word == "-h") return false;
    if (!is_flag(word)) {
      words.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    Flag& flag = find(word.substr(0, equals));
    check<ConfigError>(flag.texts.empty() || flag.takes_list(), flag.name, ": given twice");
    if (equals != std::string::npos) {
      flag.texts.push_back(word.substr(equals + 1));
    } else if (!flag.takes_value()) {
      flag.texts.push_back("true");
    } else {
      check<ConfigError>(i < arguments.size(), flag.name, ": found no value, expected ", flag.type);
      flag.texts.push_back(arguments[i++]);
    }
    while (flag.several && i < arguments.size() && !is_flag(arguments[i]) &&
           (!flag.takes_map() || goes_on(flag.texts, arguments[i])))
      flag.texts.push_back(arguments[i++]);
  }
  return true;
}

// Gives words to those who take them. What is left are files, where no flag takes words.
Arguments Flags::place(const Arguments& words) {
  size_t next = 0;
  bool any = false;
  for (Flag& flag : list_) {
    if (flag.words.empty()) continue;
    any = true;
    for (; next < words.size() && (flag.texts.empty() || flag.takes_list()); ++next)
      flag.texts.push_back(words[next]);
  }
  Arguments left(words.begin() + static_cast<ptrdiff_t>(next), words.end());
  for (const std::string& word : left)
    check<ConfigError>(!any && names_yaml(word), "unexpected `", word, "`",
                       any ? "" : "; expected flags, or a .yaml file of them");
  return left;
}

void Flags::read_files(const Arguments& files) {
  std::vector<Field> keys(list_.begin(), list_.end());
  for (Field& key : keys) {
    key.name = key_of(key.name);
    key.required = false;  // it may be given as a flag
  }
  const YamlNode tree = read_config_arguments(files, keys);
  read_fields(tree, "", keys);
  for (Flag& flag : list_) flag.given = tree.find(key_of(flag.name)) != nullptr;
}

void Flags::read_texts() {
  for (Flag& flag : list_) {
    if (!flag.texts.empty()) flag.read(node_of(flag), flag.name);
    flag.given = flag.given || !flag.texts.empty();
  }
  for (const Flag& flag : list_)
    check<ConfigError>(flag.given || !flag.required, flag.words.empty() ? flag.name : flag.words,
                       " is required: ", flag.help);
}

bool Flags::read(const Arguments& arguments) {
  try {
    Arguments words;
    if (!take(arguments, words)) {
      std::cout << help();
      return false;
    }
    if (const Arguments files = place(words); !files.empty()) read_files(files);
    read_texts();
  } catch (const ConfigError& e) {
    throw ConfigError(str(e.what(), "; see ", command_, " --help"));
  }
  for (const auto& use : uses_) use();
  return true;
}

std::string Flags::help() const {
  std::string usage = "usage: " + command_ + " [flags]", out;
  bool any = false;
  for (const Flag& flag : list_) {
    if (!flag.words.empty()) usage += " " + flag.words + (flag.takes_list() ? "..." : "");
    any = any || !flag.words.empty();
    const std::string value = default_of(flag);
    out += "  " + flag.name + (flag.takes_value() ? ": " + flag.type : "") +
           (flag.required   ? "  (required)"
            : value.empty() ? ""
                            : "  (" + value + ")") +
           "\n      " + flag.help + "\n";
  }
  return about_ + "\n" + usage + (any ? "" : " [file.yaml ...]") +
         "\nflags (name, type, default, meaning):\n" + out;
}

}  // namespace temper::cli
