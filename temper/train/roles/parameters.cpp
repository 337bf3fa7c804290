#include "temper/train/roles/parameters.h"

#include <algorithm>
#include <set>
#include <utility>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/base/glob.h"

namespace temper::train {
namespace {

std::vector<std::string> parts_of(std::string_view dotted) {
  std::vector<std::string> parts;
  while (true) {
    const size_t dot = dotted.find('.');
    parts.emplace_back(dotted.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    dotted = dotted.substr(dot + 1);
  }
}

// "; did you mean `embed_tokens`?" for the first part of a pattern that no name has.
std::string hint(const std::string& pattern, const std::vector<std::string>& names) {
  std::set<std::string> unique;
  for (const std::string& name : names)
    for (std::string& part : parts_of(name)) unique.insert(std::move(part));
  const std::vector<std::string> known(unique.begin(), unique.end());
  for (const std::string& part : parts_of(pattern))
    if (!part.empty() && part.find_first_of("*?") == std::string::npos && !unique.contains(part)) {
      const std::string alike = nearest(part, known);
      return alike.empty() ? str("; no name has the part `", part, "`")
                           : str("; did you mean `", alike, "` for `", part, "`?");
    }
  return names.empty() ? "" : str("; a name is as `", names.front(), "`");
}

[[noreturn]] void fail_unmatched(const std::string& where, const std::string& pattern,
                                 const std::vector<std::string>& names) {
  throw ConfigError(
      str(where, ": `", pattern, "` matches no parameter that trains", hint(pattern, names)));
}

}  // namespace

std::vector<NamedParameter> trainable_parameters(nn::Module& model) {
  std::vector<NamedParameter> parameters;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (p.trainable()) parameters.push_back({name, &p});
  });
  return parameters;
}

void apply_groups(const std::vector<ParameterGroup>& groups, double learning_rate,
                  std::vector<NamedParameter>& parameters, const std::string& where) {
  std::vector<bool> used(groups.size());
  for (NamedParameter& p : parameters) {
    bool first = true;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (!matches_glob(groups[g].match, p.name)) continue;
      used[g] = true;
      if (!std::exchange(first, false)) continue;
      if (groups[g].learning_rate) p.rate_scale *= *groups[g].learning_rate / learning_rate;
      if (groups[g].weight_decay) p.weight_decay = groups[g].weight_decay;
    }
  }
  std::vector<std::string> names;
  for (const NamedParameter& p : parameters) names.push_back(p.name);
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::string item = str(where, "[", g, "]");
    if (!used[g]) fail_unmatched(item + ".match", groups[g].match, names);
    check<ConfigError>(!groups[g].learning_rate || learning_rate > 0, item,
                       ".learning_rate: optimizer.learning_rate is 0, and the schedule scales both "
                       "alike; to train some parameters only, name the others in train.freeze");
  }
}

void freeze_parameters(nn::Module& model, const std::vector<std::string>& patterns,
                       const std::string& where) {
  if (patterns.empty()) return;
  const std::vector<NamedParameter> parameters = trainable_parameters(model);
  std::vector<std::string> names;
  for (const NamedParameter& p : parameters) names.push_back(p.name);
  for (const std::string& pattern : patterns) {
    bool used = false;
    for (const NamedParameter& p : parameters) {
      if (!matches_glob(pattern, p.name)) continue;
      used = true;
      p.parameter->set_trainable(false);
    }
    if (!used) fail_unmatched(where, pattern, names);
  }
  check<ConfigError>(!trainable_parameters(model).empty(), where, ": all ", parameters.size(),
                     " parameters are frozen: nothing is left to train");
}

void scale_lora_b(std::vector<NamedParameter>& parameters, double ratio) {
  for (NamedParameter& p : parameters)
    if (p.name.ends_with(".lora_B.weight") || p.name.ends_with(".lora_magnitude_vector.weight"))
      p.rate_scale *= ratio;
}

}  // namespace temper::train
