#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_config.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/text/regex.h"

namespace temper::models {
bool names_parameter(const std::vector<std::string>& target_parameters, const std::string& path) {
  return std::any_of(
      target_parameters.begin(), target_parameters.end(),
      [&](const std::string& name) { return path == name || path.ends_with("." + name); });
}

namespace {

constexpr size_t kMostExpressions = 1024;  // of a config

// Whether PEFT's re.match(rf"(.*\.)?({pattern})$", path) finds something.
class PatternMatch {
 public:
  PatternMatch(const std::string& pattern, const std::string& where) : plain_(pattern) {
    const auto is_plain = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
    };
    if (std::all_of(pattern.begin(), pattern.end(), is_plain)) return;
    expression_.emplace("\\A(.*\\.)?(" + pattern + ")\\z", where);
  }
  bool is_expression() const { return expression_.has_value(); }

  bool in(const std::string& path) const {
    Regex::Match match;
    if (expression_) return expression_->find(path, 0, match);
    if (plain_.size() > path.size()) return false;
    const size_t before = path.size() - plain_.size();
    if (before > 0 && path[before - 1] != '.') return false;
    for (size_t i = 0; i < plain_.size(); ++i)
      if (plain_[i] != '.' && plain_[i] != path[before + i]) return false;
    return true;
  }

 private:
  std::string plain_;
  std::optional<Regex> expression_;
};

class PatternTable {
 public:
  PatternTable(const std::vector<LayerPattern>& patterns, const char* key,
               const std::string& directory)
      : where_(directory.empty() ? str("adapter.", key)
                                 : str(directory, "/adapter_config.json: `", key, "`")) {
    size_t expressions = 0;
    for (const LayerPattern& p : patterns) {
      expressions +=
          entries_.emplace_back(PatternMatch(p.pattern, where_), p.value).first.is_expression();
      check<ConfigError>(expressions <= kMostExpressions, where_, ": more than ", kMostExpressions,
                         " regular expressions");
    }
  }
  const double* find(const std::string& path) const {
    for (const auto& [pattern, value] : entries_)
      if (pattern.in(path)) return &value;
    return nullptr;
  }
  const std::string& where() const { return where_; }
  // Throws ConfigError where a pattern fits none of the paths.
  void check_all_fit(const std::vector<LayerPattern>& patterns,
                     const std::set<std::string>& paths) const {
    for (size_t i = 0; i < entries_.size(); ++i)
      check<ConfigError>(
          std::any_of(paths.begin(), paths.end(),
                      [&](const std::string& p) { return entries_[i].first.in(p); }),
          where_, ": `", patterns[i].pattern,
          "` fits no layer that has an adapter; expected the end of such a path, as ",
          *paths.begin());
  }

 private:
  std::string where_;
  std::vector<std::pair<PatternMatch, double>> entries_;
};

// What PEFT compares patterns with: a module's path, or that of a parameter that
// target_parameters names.
std::string pattern_path(const Target& t, const AdapterConfig& config) {
  std::string path = t.path;
  if (const auto expert = expert_name(t.path))
    path = expert->prefix + expert->layer;
  else if (names_parameter(config.target_parameters, t.path + ".weight"))
    path += ".weight";
  constexpr std::string_view kBody = "model.";
  return path.starts_with(kBody) ? config.body + path.substr(kBody.size()) : path;
}

// Both patterns of a config.
class SizeTable {
 public:
  SizeTable(const LoraConfig& config, const std::string& directory)
      : config_(config),
        ranks_(config.rank_pattern, "rank_pattern", directory),
        alphas_(config.alpha_pattern, "alpha_pattern", directory) {}

  LoraSize at(const std::string& path) const {
    const double *own_rank = ranks_.find(path), *own_alpha = alphas_.find(path);
    const double rank = own_rank ? *own_rank : static_cast<double>(config_.rank),
                 alpha = own_alpha ? *own_alpha : config_.alpha;
    return {static_cast<int64_t>(rank), alpha / (config_.rank_stabilized ? std::sqrt(rank) : rank)};
  }

 private:
  const LoraConfig& config_;
  PatternTable ranks_, alphas_;
};

// Regular expressions are the user's: a wrong one is an error of the config.
template <class Function>
auto as_config_error(const Function& function) {
  try {
    return function();
  } catch (const DataError& e) {
    throw ConfigError(e.what());
  }
}

}  // namespace

std::vector<LoraSize> sizes_of(const std::vector<Target>& targets, const AdapterConfig& config,
                               const std::string& directory) {
  return as_config_error([&] {
    const SizeTable table(config.lora, directory);
    std::vector<LoraSize> sizes;
    std::map<std::string, LoraSize> known;  // experts of a layer share a path
    for (const Target& t : targets) {
      const std::string path = pattern_path(t, config);
      const auto found = known.find(path);
      sizes.push_back(found != known.end() ? found->second : table.at(path));
      known[path] = sizes.back();
    }
    return sizes;
  });
}

std::vector<LoraSize> fresh_sizes(const std::vector<Target>& targets, const LoraConfig& config) {
  if (config.rank_pattern.empty() && config.alpha_pattern.empty()) return {};
  AdapterConfig own;
  own.lora = config;
  std::set<std::string> paths;
  for (const Target& t : targets) paths.insert(pattern_path(t, own));
  return as_config_error([&] {
    for (const auto& [patterns, key] : {std::pair(&config.rank_pattern, "rank_pattern"),
                                        std::pair(&config.alpha_pattern, "alpha_pattern")})
      PatternTable(*patterns, key, "").check_all_fit(*patterns, paths);
    return sizes_of(targets, own, "");
  });
}

LoraConfig with_patterns_of(LoraConfig config, const std::vector<SizedLayer>& layers) {
  const SizeTable table(config, "");
  const bool same = std::all_of(layers.begin(), layers.end(), [&](const SizedLayer& layer) {
    const LoraSize size = table.at(layer.path);
    return size.rank == layer.size.rank && size.scale == layer.size.scale;
  });
  if (same) return config;
  LoraConfig written = config;
  written.rank_pattern.clear();
  written.alpha_pattern.clear();
  std::set<std::string> known;
  for (const auto& [path, size] : layers) {
    if (!known.insert(path).second) continue;
    const auto rank = static_cast<double>(size.rank);
    written.rank_pattern.push_back({path, rank});
    written.alpha_pattern.push_back(
        {path, size.scale * (config.rank_stabilized ? std::sqrt(rank) : rank)});
  }
  return written;
}

void join_gate_and_up(AdapterConfig& config, const std::vector<std::string>& names,
                      const std::string& directory) {
  LoraConfig& lora = config.lora;
  as_config_error([&] {
    for (const auto& [patterns, key] : {std::pair(&lora.rank_pattern, "rank_pattern"),
                                        std::pair(&lora.alpha_pattern, "alpha_pattern")}) {
      const PatternTable table(*patterns, key, directory);
      for (const std::string& name : names) {
        if (!expert_name(name)) continue;
        const std::string path = name.substr(0, name.find(".lora_"));
        check<ConfigError>(!table.find(path), table.where(), " has an entry for the single expert ",
                           path, "; expected one rank and alpha for all experts of a layer");
      }
    }
  });
  const std::string pattern = R"(.*\.gate_up_proj)";  // as PEFT writes it
  lora.rank_pattern.insert(lora.rank_pattern.begin(),
                           {pattern, static_cast<double>(2 * lora.rank)});
  lora.alpha_pattern.insert(lora.alpha_pattern.begin(),
                            {pattern, (lora.rank_stabilized ? std::sqrt(2.0) : 2.0) * lora.alpha});
}

}  // namespace temper::models
