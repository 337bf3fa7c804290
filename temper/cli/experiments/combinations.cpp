#include "temper/cli/experiments/combinations.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "temper/base/config/config.h"
#include "temper/base/error.h"

namespace temper::cli {
namespace {

constexpr size_t kMostCombinations = 10000, kLongestName = 200;

struct Varied {
  std::string key;
  std::vector<std::string> values;
};

std::vector<std::string> split_values(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0)
      quote = c == quote ? 0 : quote;
    else if (c == '\'' || c == '"')
      quote = c;
    else
      depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (c == ',' && depth == 0 && quote == 0)
      values.emplace_back();
    else
      values.back() += c;
  }
  return values;
}

Varied read_varied(const std::string& text) {
  const size_t equals = text.find('=');
  check<ConfigError>(equals != text.npos && equals > 0, "--over: found `", text,
                     "`, expected KEY=A,B,..");
  Varied varied{text.substr(0, equals), split_values(text.substr(equals + 1))};
  check<ConfigError>(varied.key != "output_dir" && varied.key != "resume", "--over: found ",
                     varied.key, ": each run has a directory of its own in output_dir");
  std::set<std::string> seen;
  for (const std::string& value : varied.values) {
    check<ConfigError>(!value.empty(), "--over: ", text, ": a value is empty");
    check<ConfigError>(seen.insert(value).second, "--over: ", text, ": ", value, " is there twice");
  }
  return varied;
}

// A part of a file's name.
std::string name_of_value(const std::string& value) {
  std::string name;
  for (const char c : value)
    name +=
        std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '+' ? c : '_';
  return name;
}

// The last part of the key, where no other key ends with it.
std::string short_key(const std::vector<Varied>& all, const std::string& key) {
  const std::string last = key.substr(key.rfind('.') + 1);
  const auto same = std::count_if(all.begin(), all.end(), [&](const Varied& other) {
    return other.key.substr(other.key.rfind('.') + 1) == last;
  });
  return same == 1 ? last : key;
}

}  // namespace

void check_not_fixed(const std::vector<std::string>& words, const std::vector<std::string>& over) {
  for (const std::string& word : words) {
    std::error_code none;
    if (word.find('=') == word.npos || std::filesystem::exists(word, none)) continue;
    const YamlNode setting = read_config_arguments({&word, 1});
    for (const std::string& text : over) {
      const std::string key = text.substr(0, text.find('='));
      check<ConfigError>(!find_key(setting, key), "sweep: found ", word, ", and values of ", key,
                         " (", key == "seed" ? "--seeds or " : "", "--over ", text,
                         "); give only one of them");
    }
  }
}

std::string row_settings(const Combination& one) {
  std::string found;
  for (const std::string& setting : one.settings)
    if (!setting.starts_with("optimizer.")) found += setting + "\n";
  return found;
}

std::string settings_text(const YamlNode& config) {
  std::string text;
  if (config.kind == YamlNode::Kind::kScalar) {
    std::error_code none;
    const std::filesystem::path file = std::filesystem::canonical(config.text, none);
    text = none ? config.text : file.string();
  }
  std::string parts;
  for (const YamlNode& item : config.items) parts += settings_text(item) + ",";
  for (const YamlNode::Entry& entry : config.entries)
    if (entry.key != "output_dir") parts += entry.key + "=" + settings_text(entry.value) + ",";
  return str(text.size(), ":", text, "(", parts, ")");
}

std::vector<Combination> combinations_of(const std::vector<std::string>& over) {
  std::vector<Varied> all;
  std::set<std::string> keys;
  for (const std::string& text : over) {
    all.push_back(read_varied(text));
    check<ConfigError>(keys.insert(all.back().key).second, "--over: ", all.back().key,
                       " is given twice");
  }
  std::vector<Combination> out{{}};
  for (const Varied& varied : all) {
    std::vector<Combination> more;
    check<ConfigError>(out.size() * varied.values.size() <= kMostCombinations, "--over: more than ",
                       kMostCombinations, " combinations");
    for (const Combination& one : out)
      for (const std::string& value : varied.values) {
        Combination next = one;
        next.name += (next.name.empty() ? "" : ",") + short_key(all, varied.key) + "=" +
                     name_of_value(value);
        next.settings.push_back(varied.key + "=" + value);
        more.push_back(std::move(next));
      }
    out = std::move(more);
  }
  if (all.empty()) out[0].name = "run";
  std::set<std::string> names;
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i].name.size() > kLongestName || !names.insert(out[i].name).second)
      names.insert(out[i].name = str("run-", i + 1));
  return out;
}

}  // namespace temper::cli
