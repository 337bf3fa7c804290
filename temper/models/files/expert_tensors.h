// The tensors of a mixture's experts in files: each expert's own, gate and up projection apart, or
// those of a layer in one tensor [experts, ...]. The model has each expert's own, gate and up
// projection joined (nn::Expert).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "temper/models/family.h"

namespace temper::models {

// "PREFIX.experts.EXPERT.LAYER": nullopt for another name.
struct ExpertName {
  std::string prefix;  // ends with ".experts."
  size_t expert;
  std::string layer;
};
std::optional<ExpertName> expert_name(const std::string& name);

// A part of a tensor's name in files, and the model's own.
using NameParts = std::span<const std::pair<const char*, const char*>>;

enum class ExpertForm {
  kSingle,   // "experts.0.gate_proj.weight", "experts.0.up_proj.weight",
             // "experts.0.down_proj.weight"
  kStacked,  // "experts.gate_up_proj" [experts, 2 width, hidden], "experts.down_proj"; biases are
             // "experts.gate_up_proj_bias" [experts, 2 width], "experts.down_proj_bias"
};

// Entry i of a tensor's first dimension, divided into `count` entries: the same memory.
TensorView view_entry(const TensorView& whole, size_t i, size_t count, std::vector<int64_t> shape);
// The view itself, or what it makes.
TensorView made_view(const TensorView& view);

// For Family::sanitize: renames, divides stacked tensors into views of their memory, and joins gate
// and up projection when they are read. Takes both forms, as transformers does.
void read_experts(TensorMap& tensors, NameParts names);
// For Family::restore.
void write_experts(NamedTensors& tensors, ExpertForm form, NameParts names);

}  // namespace temper::models
