#include "temper/models/adapters/adapter_copies.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/family.h"
#include "temper/nn/router.h"

namespace temper::models {

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

}  // namespace temper::models
