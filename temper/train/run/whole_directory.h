// Directories in a run's output_dir that are there as a whole or not at all: made under another
// name, then renamed. What makes or renames throws std::filesystem::filesystem_error.
#pragma once

#include <functional>
#include <string>

namespace temper::train {

// OUTPUT_DIR/.writing-NAME, where OUTPUT_DIR/NAME is written first.
std::string temporary_path(const std::string& output_dir, const std::string& name);
// Makes it anew, empty, and returns it.
std::string begin_directory(const std::string& output_dir, const std::string& name);
// Renames it to `path`, replacing a directory there.
void commit_directory(const std::string& temporary, const std::string& path);
// Makes OUTPUT_DIR/NAME by `make`, which gets the temporary path; throws what it throws.
void write_directory(const std::string& output_dir, const std::string& name,
                     const std::function<void(const std::string&)>& make);

}  // namespace temper::train
