// The names of an adapter's tensors in PEFT's files.
#pragma once

#include <string>

#include "temper/models/adapters/adapter_parts.h"

namespace temper::models {

inline const std::string kPrefix = "base_model.model.";
inline const std::string kScoreTensor = kPrefix + "score.weight";
inline const std::string kHeadTensor = kPrefix + "lm_head.weight";

inline std::string matrix_name(const Target& t, const char* matrix) {
  return kPrefix + t.path + "." + matrix + ".weight";
}
// PEFT leaves the parameter's own name out of the file.
inline std::string magnitude_name(const Target& t) {
  return kPrefix + t.path + ".lora_magnitude_vector";
}
inline std::string whole_name(const WholeModule& m) { return kPrefix + m.path + ".weight"; }

}  // namespace temper::models
