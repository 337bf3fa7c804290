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
  Dtype dtype = Dtype::kFloat32;
  std::string device = "auto", backend = "auto";  // models::DeviceChoice
  ops::Arithmetic arithmetic = ops::Arithmetic::kExact;
  std::optional<StorageName> storage;  // null: kFile; of qlora on a base of floats nf4
  Vision vision = Vision::kFrozen;     // of a model that reads images
  void fields(Fields& f);
};

// The names that model.storage and --storage take, and which weights each of them is of:
// "float32 or bfloat16 (all), int8 or nf4 (the blocks' linear layers), ...".
std::vector<std::string> storage_names();
std::string storage_help();
// The names of the formats of four bits to which weights are converted: "nf4".
std::string four_bit_names();

struct AdapterSection {
  enum class Method { kNone, kLora, kQlora };
  Method method = Method::kNone;
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  std::vector<std::string> target_modules = {"all-linear"};
  bool use_rslora = false;
  bool use_dora = false;
  std::vector<std::string> modules_to_save;
  double loraplus_ratio = 1;
  std::optional<std::string> path;
  void fields(Fields& f);
};

}  // namespace temper::models
