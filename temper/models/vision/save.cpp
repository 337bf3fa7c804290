#include "temper/models/vision/save.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/weight_files.h"
#include "temper/models/files/tensors.h"
#include "temper/models/files/untied_head.h"
#include "temper/models/vision/load.h"

namespace temper::models {
namespace {

constexpr size_t kMostProcessorBytes = size_t{16} << 20;
constexpr const char* kProcessorFiles[] = {"preprocessor_config.json", "processor_config.json",
                                           "video_preprocessor_config.json"};

// How a model's files name its language model.
struct LanguageNames {
  explicit LanguageNames(const TensorMap& files) {
    for (const LanguagePrefix& p : kLanguagePrefixes) {
      const auto first = files.lower_bound(p.body);
      if (first == files.end() || !first->first.starts_with(p.body)) continue;
      body = p.body;
      head = p.head;
      return;
    }
  }
  std::string in_files(const std::string& own) const {
    constexpr std::string_view kOwn = "model.";
    if (own.starts_with(kOwn)) return body + own.substr(kOwn.size());
    return own.starts_with("lm_head.") ? head + own : own;
  }
  bool has(const std::string& name) const {
    return name.starts_with(body) || name.starts_with(head + "lm_head.");
  }
  std::string body = "model.", head;
};

bool is_draft(const std::string& name) {
  return name.starts_with("mtp.") || name.starts_with("model.mtp.");
}

bool is_floating(const TensorView& view) {
  return view.dtype == DType::kFloat32 || view.dtype == DType::kFloat16 ||
         view.dtype == DType::kBFloat16 || view.dtype == DType::kFloat64;
}

}  // namespace

NamedTensors take_tower_tensors(NamedTensors& tensors, const Model& model) {
  NamedTensors taken;
  if (!model.tower()) return taken;
  std::set<std::string> names;
  model.tower()->each_parameter(
      [&](const std::string& name, nn::Parameter&) { names.insert(str(kTowerParent, ".", name)); });
  std::erase_if(tensors, [&](auto& tensor) {
    if (!names.contains(tensor.first)) return false;
    taken.push_back(std::move(tensor));
    return true;
  });
  return taken;
}

namespace {

// The same numbers in the shape that the files have.
TensorView shaped(TensorView view, const std::vector<int64_t>& shape) {
  view.shape = shape;
  if (view.make) view.make = [make = std::move(view.make), shape] { return shaped(make(), shape); };
  return view;
}

}  // namespace

void add_other_parts(NamedTensors& tensors, const Model& model, NamedTensors of_tower,
                     at::ScalarType dtype) {
  const std::string& directory = model.whole;
  const VisionFamily* family = vision_family_of(directory);
  check(family, directory, ": no model that reads images");
  const TensorMap files = read_weights(directory);
  const LanguageNames names(files);
  for (auto& [name, view] : tensors) name = names.in_files(name);
  std::map<std::string, TensorView*> trained;
  for (auto& [name, view] : of_tower) trained[name] = &view;
  for (const auto& [name, view] : files) {
    const auto own = is_of_tower(*family, name)
                         ? trained.find(str(kTowerParent, ".", own_name_in_tower(name)))
                         : trained.end();
    if (own != trained.end()) {
      tensors.emplace_back(name, shaped(std::move(*own->second), view.shape));
      continue;
    }
    if (!is_of_tower(*family, name) && (names.has(name) || is_draft(name))) continue;
    if (is_floating(view))
      tensors.emplace_back(name, view_of(view.shape, dtype,
                                         [view = view, dtype] { return to_tensor(view, dtype); }));
    else
      tensors.emplace_back(name, view);
  }
}

std::string body_of_whole(const std::string& directory) {
  const std::string in_files = LanguageNames(read_weights(directory)).body;
  return in_files == "model.text_model." ? in_files : "model.language_model.";
}

Json whole_config(const std::string& directory, bool untied) {
  Json config = read_json_file(directory + "/config.json", size_t{64} << 20);
  const HfConfig source = HfConfig::load(directory);
  const bool flat = !config.contains("text_config");  // Qwen2.5-VL's files on a hub
  Json& text = flat ? config : config["text_config"];
  for (Json* part : {&config, &text}) part->erase("quantization_config");
  for (const char* key : kTiedKeys) {
    const auto found = source.json().find(key);
    const bool given = found != source.json().end();
    if ((given && *found == false) || (untied && (given || key == kTiedKeys[0])))
      for (Json* part : {&config, &text})
        if (part == &config || part->contains(key)) (*part)[key] = false;
  }
  return config;
}

void copy_processor_files(const std::string& from, const std::string& directory) {
  for (const char* file : kProcessorFiles)
    if (const std::string path = str(from, "/", file); is_file(path))
      write_file_atomic(str(directory, "/", file), read_file(path, kMostProcessorBytes));
}

}  // namespace temper::models
