#include "temper/train/roles/blind_models.h"

#include "temper/models/files/directory.h"
#include "temper/models/vision/load.h"

namespace temper::train {

std::string blind(const RunConfig& config, const char* key, const std::string& found) {
  return str(config.where(key), ": found ", found, ", which does not see the images of ");
}

std::string blind_model(const RunConfig& config, const char* key, const std::string& path,
                        const std::function<std::string()>& directory) {
  try {
    if (models::vision_family_of(directory())) return "";
  } catch (const Error&) {
    return "";
  }
  return blind(config, key, path);
}

std::string blind_model(const RunConfig& config, const char* key, const std::string& path) {
  return blind_model(config, key, path,
                     [&] { return models::named_model(path, config.where(key)); });
}

void check_seen(const std::string& blind, bool has_images, const std::string& where) {
  check<ConfigError>(blind.empty() || !has_images, blind, where,
                     "; expected a model that sees them, or rows without images");
}

}  // namespace temper::train
