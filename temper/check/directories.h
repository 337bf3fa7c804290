// Directories that a run is going to make.
#pragma once

#include <filesystem>
#include <string>

namespace temper::checks {

// The nearest directory above that is there.
std::filesystem::path existing_parent(std::filesystem::path path);
// Throws ConfigError that begins with `where` unless the directory is there or can be made, and can
// be written to.
void check_writable(const std::string& directory, const std::string& where);

}  // namespace temper::checks
