#include "temper/models/adapters/adapter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "temper/base/error.h"
#include "temper/base/random.h"
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

bool is_of_adapter(const std::string& name) {
  for (const char* part : {".lora_A.", ".lora_B.", ".lora_magnitude_vector.", ".token_adapter."})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

nn::Parameter* score_weight(nn::Module& model) {
  nn::Parameter* found = nullptr;
  model.visit({.linear = [&](const std::string& path, nn::Linear& layer) {
    if (path == kScorePath) found = &layer.weight;
  }});
  return found;
}

void train_score(nn::Module& model) {
  nn::Parameter* score = score_weight(model);
  if (!score) return;
  if (score->format() == ops::WeightFormat::kBFloat16)
    score->set_format(ops::WeightFormat::kRoundedBFloat16);
  score->own();
  score->set_trainable(true);
}

namespace {

// What an adapter of the vocabulary's head cannot be.
void check_head(const Target& t, const LoraConfig& config) {
  if (!t.is(nn::Role::kHead)) return;
  check<ConfigError>(!config.dora,
                     "adapter.target_modules: an adapter of lm_head has no magnitudes; leave "
                     "use_dora or lm_head out");
  const nn::Placement* const placement = t.layer->weight.placement();
  check<ConfigError>(!placement || !placement->tensor,
                     "adapter.target_modules: lm_head takes no adapter where ranks divide the "
                     "vocabulary (mesh.tensor); leave lm_head out, or set mesh.tensor: 1");
}

}  // namespace

namespace {

bool is_of_mixture(const Target& t) { return t.is(nn::Role::kRouter) || t.is(nn::Role::kExpert); }

double scale_of(const LoraConfig& config) {
  const auto rank = static_cast<double>(config.rank);
  return config.alpha / (config.rank_stabilized ? std::sqrt(rank) : rank);
}

}  // namespace

void attach(const std::vector<Target>& targets, nn::Module& model, const LoraConfig& config,
            const std::vector<LoraSize>& sizes) {
  check_all_experts(model, targets);
  for (const Target& t : targets)
    check<ConfigError>(
        !is_of_mixture(t) || !config.dora, "`", t.path, "`: DoRA is not supported on a mixture's ",
        t.is(nn::Role::kRouter) ? "router" : "experts", "; set adapter.use_dora: false, or leave ",
        t.is(nn::Role::kRouter) ? last_part(t.path) : "gate_up_proj and down_proj",
        " out of adapter.target_modules");
  for (const Target& t : targets) check_head(t, config);
  model.each_parameter([](const std::string&, nn::Parameter& p) { p.set_trainable(false); });
  const bool of_tower = std::ranges::any_of(targets, &Target::of_tower);
  if (of_tower) dynamic_cast<Model&>(model).vision->set_adapted(true);
  for (size_t i = 0; i < targets.size(); ++i) {
    const Target& t = targets[i];
    const LoraSize size = sizes.empty() ? LoraSize{config.rank, scale_of(config)} : sizes[i];
    t.layer->add_lora(size.rank, size.scale, is_of_mixture(t) ? 0 : config.dropout, i + 1,
                      config.dora);
  }
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

// The modules of these names. Those of a tied model's head and embeddings are one.
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

void check_head_trains(const Target& head, const std::vector<WholeModule>& whole, double dropout) {
  check<ConfigError>(dropout == 0,
                     "adapter.dropout: an adapter of lm_head has no dropout; set it to 0, or leave "
                     "lm_head out of adapter.target_modules");
  for (const WholeModule& m : whole)
    check<ConfigError>(m.weight != &head.layer->weight,
                       "adapter.modules_to_save: the weight of lm_head trains whole there; leave "
                       "lm_head out of adapter.target_modules or of adapter.modules_to_save");
}

// PEFT: kaiming_uniform(a = sqrt 5), that is uniform in +-1 / sqrt(in).
at::Tensor initial_a(const nn::Linear& layer, const nn::Lora& lora, uint64_t seed) {
  at::Tensor a = at::empty(lora.lora_A.weight.whole_shape(), at::kFloat);
  const RandomStream stream(seed, RandomPurpose::kInit, lora.key, 1);
  const float bound = 1.0f / std::sqrt(static_cast<float>(layer.in()));
  for (int64_t i = 0; i < a.numel(); ++i)
    a.mutable_data_ptr<float>()[i] = bound * (2 * stream.uniform(static_cast<uint64_t>(i)) - 1);
  return a;
}

}  // namespace

bool is_path_expression(const std::string& text) {
  return text != "all-linear" && !std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '_' || c == '.';
         });
}

int64_t LoraConfig::largest_rank() const {
  int64_t largest = rank;
  for (const LayerPattern& p : rank_pattern)
    largest = std::max(largest, static_cast<int64_t>(p.value));
  return largest;
}

void add_lora(nn::Module& model, const LoraConfig& config, uint64_t seed) {
  const std::vector<Target> targets = choose_targets(model, config.target_modules);
  const std::vector<WholeModule> whole = choose_whole(model, config.modules_to_save);
  for (const Target& t : targets) {
    check<ConfigError>(!is_of_mixture(t) || config.dropout == 0, "`", t.path,
                       "`: dropout is not supported on a mixture's ",
                       t.is(nn::Role::kRouter) ? "router" : "experts",
                       "; set adapter.dropout: 0, or leave ",
                       t.is(nn::Role::kRouter) ? last_part(t.path) : "gate_up_proj and down_proj",
                       " out of adapter.target_modules");
    check<ConfigError>(!t.of_tower || config.dropout == 0, "`", t.path,
                       "`: dropout is not supported on a vision tower's layers; set "
                       "adapter.dropout: 0, or leave ",
                       last_part(t.path), " out of adapter.target_modules");
    if (t.is(nn::Role::kHead)) check_head_trains(t, whole, config.dropout);
  }
  attach(targets, model, config, fresh_sizes(targets, config));
  for (const Target& t : targets) {
    nn::Lora& lora = *t.layer->lora();
    lora.lora_A.weight.set_whole_value(initial_a(*t.layer, lora, seed));
    lora.lora_B.weight.set_value(at::zeros(lora.lora_B.weight.shape(), at::kFloat));
    lora.lora_A.weight.set_trainable(true);
    lora.lora_B.weight.set_trainable(true);
    if (!lora.lora_magnitude_vector) continue;
    lora.lora_magnitude_vector->weight.set_value(lora.row_norms(t.layer->weight).clone());
    lora.lora_magnitude_vector->weight.set_trainable(true);
  }
  for (const WholeModule& m : whole) m.versions->replace(*m.weight);
  add_token_rows(model, config.trained_tokens, "adapter.train_tokens");
  train_score(model);
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

std::vector<std::string> target_layers(nn::Module& model, const LoraConfig& config) {
  const std::vector<Target> targets = choose_targets(model, config.target_modules);
  fresh_sizes(targets, config);
  std::vector<std::string> paths;
  for (const Target& t : targets) paths.push_back(t.path);
  return paths;
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

int freeze_adapter_copy(nn::Module& model, int from) {
  const std::vector<Target> layers = linear_layers(model);
  check(std::any_of(layers.begin(), layers.end(),
                    [from](const Target& t) { return t.layer->adapter(from); }),
        "a model without an adapter has none to copy");
  int index = 0;
  const auto add = [&](const std::string&, nn::Linear& layer) {  // heads count along
    index = layer.add_frozen_copy(from);
  };
  model.visit({.linear = add, .tied_head = add, .router = add});
  for (const WholeModule& m : whole_modules(model)) m.versions->add_frozen_copy(*m.weight, from);
  return index;
}

void remove_adapter_copy(nn::Module& model, int index) {
  const auto remove = [index](const std::string&, nn::Linear& layer) {
    layer.remove_frozen_copy(index);
  };
  model.visit({.linear = remove, .tied_head = remove, .router = remove});
  for (const WholeModule& m : whole_modules(model)) m.versions->remove_frozen_copy(index);
}

void remove_adapter(nn::Module& model) {
  for (const Target& t : linear_layers(model)) t.layer->remove_lora();
  for (const WholeModule& m : whole_modules(model)) m.versions->restore(*m.weight);
}

int load_frozen_adapter(CausalLM& model, const std::string& directory) {
  load_adapter(model, directory);
  const int index = freeze_adapter_copy(model);
  remove_adapter(model);
  return index;
}

TrainedCopy train_adapter_copy(nn::Module& model, int from) {
  TrainedCopy copy{freeze_adapter_copy(model, from), {}};
  for (const Target& t : linear_layers(model)) {
    nn::Lora* lora = t.layer->adapter(copy.index);
    if (!lora) continue;
    lora->each_parameter([&](const char* name, nn::Parameter& parameter) {
      parameter.set_trainable(true);
      copy.parameters.emplace_back(t.path + "." + name + ".weight", &parameter);
    });
  }
  return copy;
}

std::unique_ptr<ScalarModel> merged_scalar_model(CausalLM& model, const HfConfig& config,
                                                 int index) {
  auto merged = std::make_unique<ScalarModel>(make_body(config));
  std::map<std::string, const nn::Parameter*> from;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) { from[name] = &p; });
  for (const WholeModule& m : whole_modules(model))
    from[m.path + ".weight"] = &m.versions->at(*m.weight, index);
  merged->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const bool is_score = name == kScorePath + std::string(".weight");
    p.set_device(is_score ? model.device() : from.at(name)->device());
    if (is_score) return;
    p.set_value(from.at(name)->float_value().detach());
  });
  std::map<std::string, nn::Linear*> layers;
  for (const Target& t : linear_layers(*merged)) layers[t.path] = t.layer;
  for (const Target& t : linear_layers(model)) {
    nn::Lora* lora = t.layer->adapter(index);
    if (!lora || t.is(nn::Role::kHead) || t.of_tower) continue;
    nn::Linear& layer = *layers.at(t.path);
    layer.weight.set_value(lora->merged(layer.weight));
  }
  return merged;
}

bool adapts_head(nn::Module& model) {
  const std::vector<Target> layers = linear_layers(model);
  return std::any_of(layers.begin(), layers.end(),
                     [](const Target& t) { return t.is(nn::Role::kHead) && t.layer->lora(); });
}

bool adapts_tied_head(nn::Module& model) {
  bool adapts = false;
  model.visit({.tied_head = [&](const std::string&, nn::TiedHead& head) {
    adapts = head.lora() != nullptr;
  }});
  return adapts;
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

bool adapts_mixture(nn::Module& model) {
  const std::vector<Target> layers = linear_layers(model);
  return std::any_of(layers.begin(), layers.end(),
                     [](const Target& t) { return is_of_mixture(t) && t.layer->lora(); });
}

void merge_adapters(nn::Module& model) {
  for (const Target& t : linear_layers(model)) t.layer->merge_lora();
  for (const WholeModule& m : whole_modules(model)) m.versions->merge();
}

}  // namespace temper::models
