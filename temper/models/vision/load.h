// Towers from model directories.
#pragma once

#include <memory>
#include <string>

#include "temper/models/model.h"
#include "temper/models/vision/tower.h"

namespace temper::models {

// The family whose tower the model of a directory has; null: it is a model of text alone, or one
// whose tower this program does not have. Throws ConfigError.
const VisionFamily* vision_family_of(const std::string& directory);
// Whether a tensor of the files is the tower's.
bool is_of_tower(const VisionFamily& family, const std::string& name);
// A tensor's name in the tower, of its name in files.
std::string own_name_in_tower(const std::string& name);
// The tower of a directory that has one, its linear layers in the storage's `weights` on its
// device, all else in float32: quantized formats are the language model's. Its parameters are named
// as in the files, without `model.` before them. Throws ConfigError, DataError.
std::unique_ptr<Tower> load_tower(const std::string& directory, const Storage& storage = {});
// The same without values, of a directory that has one.
std::unique_ptr<Tower> make_tower(const std::string& directory);
// Model::whole and Model::vision of a model of the directory, as the storage says. The tower is
// loaded with the first image.
void give_vision(Model& model, const std::string& directory, const Storage& storage);

}  // namespace temper::models
