#include "temper/check/directories.h"

#include <unistd.h>

#include "temper/base/error.h"

namespace temper::checks {

namespace fs = std::filesystem;

fs::path existing_parent(fs::path path) {
  path = fs::absolute(path);
  while (!path.empty() && path != path.root_path() && !fs::exists(path)) path = path.parent_path();
  return path;
}

void check_writable(const std::string& directory, const std::string& where) {
  const fs::path parent = existing_parent(directory);
  check<ConfigError>(fs::is_directory(parent), where, ": ", parent.string(), " is no directory");
  check<ConfigError>(::access(parent.c_str(), W_OK | X_OK) == 0, where, ": cannot write to ",
                     parent.string());
}

}  // namespace temper::checks
