#include "temper/cli/parts/shared_config.h"

#include <algorithm>
#include <set>
#include <variant>

#include "temper/base/error.h"
#include "temper/cli/parts/completion_words.h"
#include "temper/cli/training.h"
#include "temper/rl/algorithms/algorithm.h"

namespace temper::cli {
namespace {

template <class Config>
void add_keys(Config& config, std::set<std::string>& keys) {
  for (const ConfigKey& key : config_keys(Fields::of(config))) keys.insert(key.name);
}

// Every key of every training verb, with any algorithm: "rl.beta".
std::set<std::string> all_keys() {
  std::set<std::string> keys;
  for (const TrainingVerb& verb : training_verbs())
    std::visit(
        [&](auto type) {
          typename decltype(type)::type config;
          add_keys(config, keys);
          if constexpr (std::is_same_v<decltype(config), rl::RlConfig>)
            for (const std::string& name : rl::algorithms().names()) {
              config.rl.set_algorithm(name, {});
              add_keys(config, keys);
            }
        },
        verb.config);
  return keys;
}

// The parts of the keys that stand right below the section.
std::vector<std::string> names_below(const std::set<std::string>& keys,
                                     const std::string& section) {
  std::set<std::string> names;
  for (auto key = keys.lower_bound(section + "."); key != keys.end(); ++key) {
    if (!key->starts_with(section + ".")) break;
    const size_t begin = section.size() + 1;
    names.insert(key->substr(begin, key->find('.', begin) - begin));
  }
  return {names.begin(), names.end()};
}

void check_section(const YamlNode& node, const std::string& section,
                   const std::set<std::string>& keys) {
  const std::vector<std::string> known = names_below(keys, section);
  for (const YamlNode::Entry& entry : node.entries) {
    const std::string key = section + "." + entry.key;
    if (keys.contains(key)) continue;
    check<ConfigError>(std::find(known.begin(), known.end(), entry.key) != known.end(),
                       entry.origin.str(), ": unknown key `", section, ".",
                       YamlNode::scalar(entry.key).found(), "`", did_you_mean(entry.key, known));
    check_section(entry.value, key, keys);
  }
}

}  // namespace

std::vector<std::string> other_sections(const std::string& verb) {
  const std::vector<std::string>& own = find_training_verb(verb)->sections;
  std::vector<std::string> others;
  for (const TrainingVerb& other : training_verbs())
    for (const std::string& section : other.sections)
      if (std::find(own.begin(), own.end(), section) == own.end() &&
          std::find(others.begin(), others.end(), section) == others.end())
        others.push_back(section);
  // Servers and the like, which only reinforcement learning has.
  const std::string shared = "rollout";
  if (std::ranges::find(own, shared) == own.end()) return others;
  std::set<std::string> keys;
  std::visit(
      [&](auto type) {
        typename decltype(type)::type config;
        add_keys(config, keys);
      },
      find_training_verb(verb)->config);
  const std::vector<std::string> here = names_below(keys, shared);
  for (const std::string& name : names_below(all_keys(), shared))
    if (std::ranges::find(here, name) == here.end()) others.push_back(shared + "." + name);
  return others;
}

void check_other_sections(const YamlNode& written, const std::string& verb) {
  const std::vector<std::string> others = other_sections(verb);
  std::set<std::string> keys;
  const auto check_entry = [&](const YamlNode::Entry& entry, const std::string& key) {
    if (std::ranges::find(others, key) == others.end()) return;
    if (keys.empty()) keys = all_keys();
    if (!keys.contains(key)) check_section(entry.value, key, keys);
  };
  for (const YamlNode::Entry& entry : written.entries) {
    check_entry(entry, entry.key);
    for (const YamlNode::Entry& below : entry.value.entries)
      check_entry(below, entry.key + "." + below.key);
  }
}

}  // namespace temper::cli
