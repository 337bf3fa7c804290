// Models that read images, saved with the parts that their language model is not.
#pragma once

#include <string>

#include "temper/base/json.h"
#include "temper/models/model.h"

namespace temper::models {

// Takes those of the tower out of a model's tensors, where it has taken its tower.
NamedTensors take_tower_tensors(NamedTensors& tensors, const Model& model);
// Gives the language model's tensors, by their names alone, those of the model of the directory,
// and adds the other parts of its files in the dtype, which are made when they are written: the
// given ones of the tower, the others as the files have them.
void add_other_parts(NamedTensors& tensors, const Model& model, NamedTensors of_tower,
                     at::ScalarType dtype);

// What transformers' modules and PEFT call the language model of the model of a directory.
std::string body_of_whole(const std::string& directory);

// config.json of the whole model of a directory, for weights that are not quantized. untied: as
// write_model_files.
Json whole_config(const std::string& directory, bool untied);
// What its processor reads.
void copy_processor_files(const std::string& from, const std::string& directory);

}  // namespace temper::models
