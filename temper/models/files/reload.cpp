#include "temper/models/files/reload.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <map>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/files/load.h"
#include "temper/models/shared.h"
#include "temper/models/vision/encoder.h"

namespace temper::models {
namespace {

void remove_adapter(CausalLM& model) {
  for (const Target& t : linear_layers(model)) t.layer->remove_lora();
  for (const WholeModule& m : whole_modules(model)) m.versions->restore(*m.weight);
}

// Weights that are not numbers would fail every request after.
void check_finite(nn::Module& model, const std::string& directory) {
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    check<ConfigError>(!p.value().defined() || at::isfinite(p.value()).all().item<bool>(),
                       directory, ": ", name, " holds NaN or infinity");
  });
}

}  // namespace

void Reloader::load_whole(const std::string& directory) {
  const std::unique_ptr<CausalLM> fresh = load_model(directory, storage_, false);
  if (fresh->vision) fresh->vision->tower();  // before the directory changes
  if (fresh->vision && model_.tower()) fresh->take_tower();
  check_finite(*fresh, directory);
  std::map<std::string, nn::Parameter*> from;
  fresh->each_parameter([&](const std::string& name, nn::Parameter& p) { from[name] = &p; });
  std::map<std::string, nn::Parameter*> own;
  model_.each_parameter([&](const std::string& name, nn::Parameter& p) { own[name] = &p; });
  for (const auto& [name, parameter] : from) {
    const auto it = own.find(name);
    check<ConfigError>(
        it != own.end() && it->second->shape() == parameter->shape(), directory,
        ": is a model of other shapes: ", name, " is ", at::IntArrayRef(parameter->shape()),
        it == own.end()
            ? std::string(", and the served model has none")
            : temper::str(", and the served model's ", at::IntArrayRef(it->second->shape())));
  }
  for (const auto& [name, parameter] : own)
    check<ConfigError>(from.contains(name) || is_of_adapter(name), directory, ": lacks ", name,
                       " of the served model");
  remove_adapter(model_);
  for (const auto& [name, parameter] : from) share_value(*parameter, *own.at(name));
  if (!model_.tower()) model_.vision = fresh->vision;
  model_.eos_token_ids = fresh->eos_token_ids;
  model_.image_marks = std::move(fresh->image_marks);
  model_.vision = std::move(fresh->vision);
  model_.files = std::move(fresh->files);
  replaced_ = true;
}

void Reloader::load(const std::string& directory) {
  if (!std::filesystem::exists(directory + "/adapter_config.json")) return load_whole(directory);
  const std::unique_ptr<CausalLM> probe = share_base(model_, HfConfig::load(base_));
  probe->vision = nullptr;          // it takes no tower that is another model's
  load_adapter(*probe, directory);  // whether it fits
  check_finite(*probe, directory);
  if (replaced_) load_whole(base_);
  replaced_ = false;
  remove_adapter(model_);
  load_adapter(model_, directory);
}

}  // namespace temper::models
