// Adapters of a mixture's experts in PEFT's files. PEFT has one pair of matrices for the stacked
// experts of a projection (LoraConfig.target_parameters, lora.ParamWrapper): A [experts · rank,
// in], expert by expert, and B [out, rank · experts], in which the expert is the last index. Both
// projections of a layer are named by nesting: gate_up_proj is the inner one, "base_layer". The
// model has a pair for each expert.
#pragma once

#include <string>
#include <vector>

#include "temper/models/adapters/adapter_parts.h"

namespace temper::models {

// How PEFT's target_parameters name the experts of a module: "mlp.experts." of
// "model.layers.3.mlp.experts."; "experts." where they are the block's own (Gemma 4).
std::string parameter_stem(const std::string& module);
// Whether layers have experts in an MLP's place, not beside it in their block (Gemma 4).
bool has_experts_for_mlps(const std::vector<Target>& layers);

// Beside such experts PEFT takes modules of these names for experts, but not parameters.
bool is_expert_name(const std::string& last_part);

// Renames and divides the tensors of a file, named behind `prefix`, into those of the experts among
// `layers`. `parameters` are the file's target_parameters. Throws ConfigError of the directory.
void divide_expert_adapters(TensorMap& tensors, const std::vector<Target>& layers,
                            const std::vector<std::string>& parameters, const std::string& prefix,
                            const std::string& directory);
// The same of single experts' files, which PEFT wrote with transformers 4: matrices of gate_proj
// and up_proj (Mixtral's w1 and w3) become those of gate_up_proj as PEFT joins them: A [2 rank, in]
// of both, and B with a block for each. Gives whether there are any. Throws ConfigError where one
// of the two is missing.
bool join_single_adapters(TensorMap& tensors, const std::vector<Target>& layers,
                          const std::string& prefix, const std::string& directory);
// The inverse of divide_expert_adapters.
void join_expert_adapters(TensorMap& tensors);

// linear_layers(), in a mixture without its routers and the MLPs that are no experts: where a model
// has experts in an MLP's place PEFT takes gate_proj, up_proj and down_proj for theirs, so that its
// files have no place for others. MLPs beside the experts of their block (Gemma 4) stay.
std::vector<Target> adaptable_layers(nn::Module& model);

// Throws ConfigError where the targets hold some of a layer's experts, but not all of them.
void check_all_experts(nn::Module& model, const std::vector<Target>& targets);

}  // namespace temper::models
