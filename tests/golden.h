// Files of the checkout that tests read.
#pragma once

#include <cstdlib>
#include <string>

namespace temper {

// A path below the checkout.
inline std::string source_path(const std::string& path) {
  const char* root = std::getenv("TEMPER_SOURCE_DIR");
  return std::string(root ? root : ".") + "/" + path;
}
// tests/golden/NAME.
inline std::string golden_path(const std::string& name) {
  return source_path("tests/golden/" + name);
}

}  // namespace temper
