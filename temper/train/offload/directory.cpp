#include "temper/train/offload/directory.h"

#include <unistd.h>

#include <filesystem>

#include "temper/base/errno_text.h"

namespace temper::train {

std::string offload_directory(const RunConfig& config) {
  return config.train.offload_dir.value_or(config.output_dir);
}

void check_offload_dir(const RunConfig& config) {
  if (!config.train.offload_dir) return;
  const std::string& directory = *config.train.offload_dir;
  std::error_code none;
  config.require(std::filesystem::is_directory(directory, none), "train.offload_dir", "found ",
                 directory, ", expected a directory that exists");
  config.require(::access(directory.c_str(), W_OK | X_OK) == 0, "train.offload_dir",
                 "cannot write to ", directory, ": ", errno_text);
}

}  // namespace temper::train
