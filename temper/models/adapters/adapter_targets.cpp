// Which layers and modules of a model an adapter is on, and which names mean them.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/adapters/expert_adapters.h"
#include "temper/models/model.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"
#include "temper/nn/router.h"
#include "temper/text/regex.h"

namespace temper::models {

std::vector<Target> linear_layers(nn::Module& model) {
  std::vector<Target> layers, head, of_tower;
  std::set<const nn::Linear*> in_tower;
  const auto* const whole = dynamic_cast<const Model*>(&model);
  if (whole && whole->tower())
    whole->tower()->visit(
        {.linear = [&](const std::string&, nn::Linear& layer) { in_tower.insert(&layer); }});
  const auto add_head = [&](const std::string& path, nn::Linear& layer) {
    head.push_back({path, &layer});
  };
  model.visit({.linear =
                   [&](const std::string& path, nn::Linear& layer) {
                     if (in_tower.contains(&layer))
                       of_tower.push_back({path, &layer, true});
                     else if (path != kScorePath)
                       layers.push_back({path, &layer});
                   },
               .lm_head = add_head,
               .tied_head = add_head,
               .router = [&](const std::string& path,
                             nn::Router& router) { layers.push_back({path, &router}); }});
  layers.insert(layers.end(), head.begin(), head.end());
  layers.insert(layers.end(), of_tower.begin(), of_tower.end());
  return layers;
}

std::vector<WholeModule> whole_modules(nn::Module& model) {
  std::vector<WholeModule> modules;
  const auto add = [&](const std::string& path, auto& module) {
    modules.push_back({path, &module.weight, &module.versions});
  };
  model.visit({.lm_head = add, .embedding = add});
  return modules;
}

int64_t table_rows(nn::Module& model) {
  int64_t rows = 0;
  model.visit({.embedding = [&](const std::string&, nn::Embedding& embedding) {
    rows = embedding.weight.whole_shape()[0];
  }});
  return rows;
}

bool is_tied(nn::Module& model) {
  bool own_head = false;
  model.visit({.linear = [&](const std::string& path,
                             nn::Linear&) { own_head = own_head || path == kScorePath; },
               .lm_head = [&](const std::string&, nn::LmHead&) { own_head = true; }});
  return !own_head;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

bool is_path_expression(const std::string& text) {
  return text != "all-linear" && !std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '_' || c == '.';
         });
}

namespace {

// The layers that the ends of their paths may name.
std::vector<Target> named_layers(nn::Module& model) {
  std::vector<Target> layers = adaptable_layers(model);
  const auto* const whole = dynamic_cast<const Model*>(&model);
  const Tower* const tower = whole ? whole->tower() : nullptr;
  const auto may_be_named = [&](const Target& t) {
    if (!t.of_tower) return t.is(nn::Role::kRouter) || t.is(nn::Role::kHead);
    return !tower->projector_alone || tower->is_projector(own_name_in_tower(t.path));
  };
  for (const Target& t : linear_layers(model))
    if (may_be_named(t)) layers.push_back(t);
  return layers;
}

// PEFT's rule: a regular expression matches a module's whole path. The text of a multimodal model
// has a longer one in its files.
std::vector<Target> matched_layers(const std::vector<Target>& layers, const std::string& text) {
  constexpr std::string_view kBody = "model.", kTextBody = "model.language_model.";
  std::vector<Target> chosen;
  try {
    const Regex expression("\\A(?:" + text + ")\\z", "adapter.target_modules");
    const auto matches = [&](const std::string& path) {
      Regex::Match match;
      return expression.find(path, 0, match);
    };
    for (const Target& t : layers)
      if (matches(t.path) || (!t.of_tower && t.path.starts_with(kBody) &&
                              matches(std::string(kTextBody) + t.path.substr(kBody.size()))))
        chosen.push_back(t);
  } catch (const DataError& e) {
    throw ConfigError(e.what());
  }
  check<ConfigError>(!chosen.empty(), "adapter.target_modules: no linear layer's path is matched ",
                     "whole by `", text, "`; there is ", layers.at(0).path);
  return chosen;
}

}  // namespace

std::vector<Target> choose_targets(nn::Module& model, const std::vector<std::string>& names) {
  if (names.size() == 1 && names[0] == "all-linear") return adaptable_layers(model);
  const std::vector<Target> layers = named_layers(model);
  if (names.size() == 1 && is_path_expression(names[0])) return matched_layers(layers, names[0]);
  std::set<const nn::Linear*> by_end;
  for (const Target& t : layers) by_end.insert(t.layer);
  std::set<std::string> known;
  for (const Target& t : layers) known.insert(last_part(t.path));
  std::vector<Target> chosen;
  std::set<std::string> used;
  for (const Target& t : layers)
    for (const std::string& name : names)
      if (name == last_part(t.path) || name == t.path || t.path.ends_with("." + name)) {
        used.insert(name);
        chosen.push_back(t);
        break;
      }
  const std::set<std::string> paths(names.begin(), names.end());
  for (const Target& t : linear_layers(model)) {
    // Another layer only if the file of an adapter had it.
    if (by_end.contains(t.layer) || !t.layer->lora() || !paths.contains(t.path)) continue;
    used.insert(t.path);
    chosen.push_back(t);
  }
  for (const std::string& name : names) {
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    check<ConfigError>(used.contains(name), "adapter.target_modules: `", name,
                       "` names no linear layer; there are ", list,
                       ", or all-linear, which is all of them but lm_head and routers");
  }
  return chosen;
}

std::vector<WholeModule> choose_whole(nn::Module& model, const std::vector<std::string>& names) {
  const std::vector<WholeModule> modules = whole_modules(model);
  std::set<const nn::Parameter*> chosen;
  for (const std::string& name : names) {
    if (name == kScorePath && score_weight(model)) continue;  // it trains in any case
    const bool tied = last_part(name) == "lm_head" && is_tied(model);
    const std::string wanted = tied ? "embed_tokens" : name;
    std::string list;
    bool found = false;
    for (const WholeModule& m : modules) {
      list += (list.empty() ? "" : ", ") + last_part(m.path);
      if (m.path != wanted && last_part(m.path) != wanted) continue;
      chosen.insert(m.weight);
      found = true;
    }
    check<ConfigError>(found, "adapter.modules_to_save: found `", name, "`, expected some of ",
                       list);
  }
  std::vector<WholeModule> out;
  for (const WholeModule& m : modules)
    if (chosen.contains(m.weight)) out.push_back(m);
  return out;
}

std::vector<std::string> names_of_targets(nn::Module& model, const std::vector<Target>& targets) {
  std::set<const nn::Linear*> adapted, whole;
  for (const Target& t : targets) adapted.insert(t.layer);
  std::map<std::string, std::vector<Target>> ends;
  for (const Target& t : named_layers(model)) ends[last_part(t.path)].push_back(t);
  std::vector<std::string> names;
  for (const auto& [end, layers] : ends) {
    const bool all = std::all_of(layers.begin(), layers.end(),
                                 [&](const Target& t) { return adapted.contains(t.layer); });
    if (!all) continue;
    names.push_back(end);
    for (const Target& t : layers) whole.insert(t.layer);
  }
  for (const Target& t : targets)
    if (!whole.contains(t.layer)) names.push_back(t.path);
  return names;
}

std::vector<std::string> saved_weights(nn::Module& model, const std::vector<std::string>& names) {
  std::vector<std::string> weights;
  for (const WholeModule& m : choose_whole(model, names)) weights.push_back(m.path + ".weight");
  return weights;
}

bool targets_are(nn::Module& model, const std::vector<std::string>& names) {
  std::set<const nn::Linear*> named, adapted;
  for (const Target& t : choose_targets(model, names)) named.insert(t.layer);
  for (const Target& t : linear_layers(model))
    if (t.layer->lora()) adapted.insert(t.layer);
  return named == adapted;
}

bool saved_modules_are(nn::Module& model, const std::vector<std::string>& names) {
  std::set<const nn::Parameter*> named, replaced;
  for (const WholeModule& m : choose_whole(model, names)) named.insert(m.weight);
  for (const WholeModule& m : whole_modules(model))
    if (m.versions->replaced() && !m.versions->rows()) replaced.insert(m.weight);
  return named == replaced;
}

std::vector<std::string> adapted_layers(nn::Module& model) {
  std::vector<std::string> paths;
  for (const Target& t : linear_layers(model))
    if (t.layer->lora()) paths.push_back(t.path);
  return paths;
}

std::string tower_layer(nn::Module& model) {
  for (const Target& t : named_layers(model))
    if (t.of_tower) return own_name_in_tower(t.path);
  return "";
}

}  // namespace temper::models
