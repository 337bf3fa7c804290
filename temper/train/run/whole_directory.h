// Directories in a run's output_dir that are there as a whole or not at all: made under another
// name, then renamed. All throw std::filesystem::filesystem_error.
#pragma once

#include <functional>
#include <string>

namespace temper::train {

// The other name of the directory OUTPUT_DIR/.writing-NAME.
std::string writing_name(const std::string& output_dir, const std::string& name);
// Makes it anew, empty, and returns it.
std::string begin_directory(const std::string& output_dir, const std::string& name);
// Gives it its name `path`, in the place of what has that.
void commit_directory(const std::string& temporary, const std::string& path);
// Makes OUTPUT_DIR/NAME by `make`, which gets the other name.
void write_directory(const std::string& output_dir, const std::string& name,
                     const std::function<void(const std::string&)>& make);

}  // namespace temper::train
