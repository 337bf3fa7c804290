#include "temper/models/shared.h"

#include <map>
#include <string>

#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/vision/encoder.h"

namespace temper::models {

void share_value(const nn::Parameter& from, nn::Parameter& to) {
  to.set_arithmetic(from.arithmetic());
  to.set_device(from.device());
  // Codes have their format: to set it first would convert the value that goes.
  if (ops::is_quantized(from.format())) return to.set_codes(from.stored().quantized);
  to.set_format(from.format());
  to.set_value(from.value().detach());
}

std::unique_ptr<CausalLM> share_base(CausalLM& model, const HfConfig& config) {
  std::map<std::string, const nn::Parameter*> from;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) { from[name] = &p; });
  for (const WholeModule& m : whole_modules(model))
    from[m.path + ".weight"] = &m.versions->at(*m.weight, -1);
  std::unique_ptr<CausalLM> base = make_model(config);
  if (model.tower()) {  // of a model that trains it: other weights later
    base->vision = std::make_shared<Encoder>(model.tower()->again());
    base->take_tower();
  } else {
    base->vision = model.vision;
  }
  base->each_parameter(
      [&](const std::string& name, nn::Parameter& p) { share_value(*from.at(name), p); });
  set_cache_dtype(*base, model.attention_spec().cache_dtype);
  base->eos_token_ids = model.eos_token_ids;
  base->image_marks = model.image_marks;
  return base;
}

std::vector<ParameterCopy> adapter_copy(CausalLM& model, int index) {
  std::vector<ParameterCopy> copies;
  for (const Target& t : linear_layers(model)) {
    nn::Lora *own = t.layer->lora(), *copy = t.layer->adapter(index);
    if (!own || !copy) continue;
    std::map<std::string, const nn::Parameter*> from;
    own->each_parameter([&](const char* name, nn::Parameter& p) { from[name] = &p; });
    copy->each_parameter(
        [&](const char* name, nn::Parameter& p) { copies.push_back({from.at(name), &p}); });
  }
  for (const WholeModule& m : whole_modules(model)) {
    if (!m.versions->replaced()) continue;
    // The versions are the model's own, which is not constant here.
    copies.push_back({m.weight, const_cast<nn::Parameter*>(&m.versions->at(*m.weight, index))});
  }
  return copies;
}

std::vector<ParameterCopy> trainable_copy(CausalLM& model, CausalLM& other) {
  std::map<std::string, nn::Parameter*> to;
  other.each_parameter([&](const std::string& name, nn::Parameter& p) { to[name] = &p; });
  std::vector<ParameterCopy> copies;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (p.trainable()) copies.push_back({&p, to.at(name)});
  });
  return copies;
}

}  // namespace temper::models
