#include "temper/models/shared.h"

#include <map>
#include <string>

#include "temper/base/error.h"
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

std::unique_ptr<ScalarModel> share_base(ScalarModel& model, const HfConfig& config) {
  std::map<std::string, const nn::Parameter*> from;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) { from[name] = &p; });
  auto base = std::make_unique<ScalarModel>(make_body(config));
  const nn::Parameter* const score = score_weight(*base);
  base->each_parameter([&](const std::string& name, nn::Parameter& p) {
    p.set_device(from.at(name)->device());
    if (&p != score) share_value(*from.at(name), p);
  });
  set_cache_dtype(*base, model.body().attention_spec(0).cache_dtype);
  return base;
}

std::vector<ParameterCopy> adapter_copy(Model& model, int from, Model& other, int to) {
  std::map<std::string, nn::Lora*> theirs;
  for (const Target& t : linear_layers(model)) theirs[t.path] = t.layer->adapter(from);
  std::vector<ParameterCopy> copies;
  for (const Target& t : linear_layers(other)) {
    nn::Lora *const copy = t.layer->adapter(to), *const original = theirs[t.path];
    check(!copy == !original, t.path, ": one of the two adapters is not on it");
    if (!copy) continue;
    std::map<std::string, const nn::Parameter*> parts;
    original->each_parameter([&](const char* name, nn::Parameter& p) { parts[name] = &p; });
    copy->each_parameter(
        [&](const char* name, nn::Parameter& p) { copies.push_back({parts.at(name), &p}); });
  }
  return copies;
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
