// The config sections `model` and `adapter`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"

namespace temper::models {

struct ModelSection {
  enum class Dtype { kFloat32, kBfloat16 };
  enum class Storage { kFloat32, kBfloat16, kInt8, kNf4, kMxFp4 };
  std::string path;  // empty: not given
  Dtype dtype = Dtype::kFloat32;
  std::string device = "auto", backend = "auto";  // models::DeviceChoice
  enum class Arithmetic { kExact, kFast, kAmx };
  Arithmetic arithmetic = Arithmetic::kExact;
  std::optional<Storage> storage;  // null: as dtype says; of qlora nf4
  void fields(Fields& f);
};

// The names of ModelSection::Storage, which --storage takes, too.
std::vector<std::string> storage_names();

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
