#include "temper/models/vision/load.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/gguf.h"
#include "temper/io/weight_files.h"
#include "temper/models/decoder.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/checkpoint_tensors.h"
#include "temper/models/vision/encoder.h"

namespace temper::models {
namespace {

Registry<VisionFamily>& vision_table() {
  static Registry<VisionFamily> families("model family that reads images");
  return families;
}

std::string without_model(const std::string& name) {
  constexpr std::string_view kModel = "model.";
  return name.starts_with(kModel) ? name.substr(kModel.size()) : name;
}

// Towers that pool an image have a head that nothing reads.
bool is_pooling(const std::string& own) { return own.starts_with("vision_tower.head."); }

HfConfig part_of(const Json& whole, const char* section, const std::string& where) {
  Json part = whole.value(section, Json::object());
  check<ConfigError>(part.is_object(), where, ": `", section, "`: expected an object");
  if (!part.contains("model_type")) part["model_type"] = whole.at("model_type");
  return HfConfig::parse(std::move(part), str(where, ": `", section, "`"));
}

}  // namespace

const Registry<VisionFamily>& vision_families() { return vision_table(); }

RegisteredVisionFamily::RegisteredVisionFamily(const VisionFamily& family) {
  vision_table().add({family.model_type, family, family.help});
}

const VisionFamily* vision_family_of(const std::string& directory) {
  if (is_gguf_file(directory) || !is_file(directory + "/config.json")) return nullptr;
  const Json config = read_json_file(directory + "/config.json", size_t{64} << 20);
  if (!config.is_object() || !config.contains("vision_config")) return nullptr;
  const Json type = config.value("model_type", Json());
  if (!type.is_string() || !vision_table().contains(type.get<std::string>())) return nullptr;
  return &vision_table().find(type.get<std::string>());
}

std::string own_name_in_tower(const std::string& name) {
  constexpr std::string_view kTower = "vision_tower.", kModel = "vision_model.";
  std::string own = without_model(name);
  if (own.starts_with(kTower) && std::string_view(own).substr(kTower.size()).starts_with(kModel))
    own.erase(kTower.size(), kModel.size());
  return own;
}

bool Tower::is_projector(const std::string& name) const {
  return family && std::ranges::any_of(family->projector,
                                       [&](const std::string& p) { return name.starts_with(p); });
}

bool is_of_tower(const VisionFamily& family, const std::string& name) {
  return std::ranges::any_of(family.prefixes, [own = without_model(name)](const std::string& p) {
    return own.starts_with(p);
  });
}

void give_vision(Model& model, const std::string& directory, const Storage& storage) {
  if (!vision_family_of(directory)) return;
  if (storage.whole) model.whole = directory;
  if (storage.sees)
    model.vision = std::make_shared<Encoder>([=] { return load_tower(directory, storage); });
}

std::unique_ptr<Tower> make_tower(const std::string& directory) {
  const VisionFamily* family = vision_family_of(directory);
  std::string known;
  for (const std::string& name : vision_table().names())
    known += (known.empty() ? "" : ", ") + name;
  check<ConfigError>(family, directory, ": no model that reads images; expected one of ", known);
  const std::string where = directory + "/config.json";
  const Json whole = read_json_file(where, size_t{64} << 20);
  const HfConfig text = HfConfig::load(directory);
  Json outer = whole;
  outer.erase("text_config");
  const VisionConfig config{HfConfig::parse(std::move(outer), where),
                            part_of(whole, "vision_config", where), text,
                            family_of(text).config(text).hidden_size};
  const auto make = [family, config] {
    std::unique_ptr<Tower> made = family->make(config);
    made->family = family;
    return made;
  };
  std::unique_ptr<Tower> tower = make();
  tower->again = make;
  return tower;
}

std::unique_ptr<Tower> load_tower(const std::string& directory, const Storage& storage) {
  std::unique_ptr<Tower> tower = make_tower(directory);
  const VisionFamily* const family = tower->family;
  CheckpointTensors from{directory, HfConfig::load(directory), {}, {}};
  TensorMap all = read_weights(directory, &from.files);
  open_formats(all, from.config, directory);
  for (auto& [name, view] : all)
    if (is_of_tower(*family, name) && !is_pooling(own_name_in_tower(name)))
      from.tensors[own_name_in_tower(name)] = std::move(view);
  tower->each_parameter(
      [&](const std::string&, nn::Parameter& p) { p.set_device(storage.device); });
  tower->visit({.linear = [&](const std::string&, nn::Linear& layer) {
    layer.weight.set_format(storage.weights);
    layer.weight.set_arithmetic(storage.arithmetic);
  }});
  const auto take = [&](nn::Parameter& parameter, const std::string& name) -> std::string {
    TensorView view = std::move(from.tensors.at(name));
    from.tensors.erase(name);
    const std::vector<int64_t>&wanted = parameter.whole_shape(), found = view.shape;
    const bool convolution =
        wanted.size() == 2 && found.size() > 2 && found[0] == wanted[0] &&
        shape_bytes(found, DType::kFloat32) == shape_bytes(wanted, DType::kFloat32) && !view.make;
    if (convolution) {
      tower->shapes_in_files[name] = found;
      view.shape = wanted;
    }
    if (view.shape != wanted) return shape_mismatch(view.shape, parameter);
    set_from_view(parameter, view, false, str(directory, ": `", name, "`"));
    return "";
  };
  match_tensors(*tower, from, "", take, {});
  tower->files = std::move(from.files);
  return tower;
}

}  // namespace temper::models
