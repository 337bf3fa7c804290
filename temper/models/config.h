// The config sections `model` and `adapter`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/models/storage_name.h"

namespace temper::models {

struct ModelSection {
  enum class Dtype { kFloat32, kBfloat16 };
  enum class Vision { kFrozen, kProjector, kTrain, kNone };
  std::string path;                      // empty: not given
  std::optional<std::string> tokenizer;  // of a GGUF file: a directory whose tokenizer it has
  std::vector<std::string> new_tokens;   // texts that become tokens (use_new_tokens)
  Dtype dtype = Dtype::kFloat32;
  std::string device = "auto", backend = "auto";  // models::DeviceChoice
  ops::Arithmetic arithmetic = ops::Arithmetic::kExact;
  std::optional<StorageName> storage;  // null: kFile; of qlora on a base of floats nf4
  Vision vision = Vision::kFrozen;     // of a model that reads images
  // Whether all of the vision tower trains, or its projector.
  bool trains_tower() const { return vision == Vision::kProjector || vision == Vision::kTrain; }
  void fields(Fields& f);
};

// The names that model.storage and --storage take, and which weights each of them is of:
// "float32 or bfloat16 (all), int8 or nf4 (the blocks' linear layers), ...".
std::vector<std::string> storage_names();
std::string storage_help();
// The names of the formats of four bits to which weights are converted: "nf4".
std::string four_bit_names();

// A number of PEFT's rank_pattern or alpha_pattern: for layers whose paths end with a match of the
// regular expression.
struct LayerPattern {
  std::string pattern;
  double value;
  bool operator==(const LayerPattern&) const = default;
};
// A map of numbers in a config, in the order in which it is written: the first that fits counts.
struct LayerPatterns {
  std::vector<LayerPattern> list;
  bool operator==(const LayerPatterns&) const = default;
};

// Tokens whose rows of the embedding train beside an adapter: model.new_tokens, or tokens by texts.
struct TrainTokens {
  bool all_new = false;
  std::vector<std::string> texts;
  bool any() const { return all_new || !texts.empty(); }
  bool operator==(const TrainTokens&) const = default;
};

struct AdapterSection {
  enum class Method { kNone, kLora, kQlora };
  Method method = Method::kNone;
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  std::vector<std::string> target_modules = {"all-linear"};
  LayerPatterns rank_pattern, alpha_pattern;
  bool use_rslora = false;
  bool use_dora = false;
  std::vector<std::string> modules_to_save;
  TrainTokens train_tokens;
  double loraplus_ratio = 1;
  std::optional<std::string> path;
  void fields(Fields& f);
};

}  // namespace temper::models

namespace temper::config_detail {

template <>
struct Traits<models::LayerPatterns> {
  static std::string type(const Rule&) { return "map of numbers"; }
  static void read(const YamlNode& node, const std::string& path, const Rule& rule,
                   models::LayerPatterns& value);
  static YamlNode write(models::LayerPatterns& value);
  static std::vector<Field> children() { return {}; }
};

template <>
struct Traits<models::TrainTokens> {
  static std::string type(const Rule&) { return "new or list of texts"; }
  static void read(const YamlNode& node, const std::string& path, const Rule& rule,
                   models::TrainTokens& value);
  static YamlNode write(models::TrainTokens& value);
  static std::vector<Field> children() { return {}; }
};

}  // namespace temper::config_detail
