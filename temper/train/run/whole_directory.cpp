#include "temper/train/run/whole_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <filesystem>

namespace temper::train {
namespace fs = std::filesystem;

namespace {

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

std::string temporary_path(const std::string& output_dir, const std::string& name) {
  return output_dir + "/.writing-" + name;
}

std::string begin_directory(const std::string& output_dir, const std::string& name) {
  std::string temporary = temporary_path(output_dir, name);
  fs::remove_all(temporary);
  fs::create_directories(temporary);
  return temporary;
}

// An existing directory and the new one change places in one step; where the file system cannot do
// that, the old one has another name in between.
void commit_directory(const std::string& temporary, const std::string& path) {
  sync_directory(temporary);
  fs::create_directories(fs::path(path).parent_path());
  const bool exchanged = fs::exists(path) && ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD,
                                                         path.c_str(), RENAME_EXCHANGE) == 0;
  const std::string old = exchanged ? temporary : temporary + "-over";
  if (!exchanged) {
    fs::remove_all(old);
    if (fs::exists(path)) fs::rename(path, old);  // a file system that cannot exchange
    fs::rename(temporary, path);
  }
  sync_directory(fs::path(path).parent_path().string());
  fs::remove_all(old);
}

void write_directory(const std::string& output_dir, const std::string& name,
                     const std::function<void(const std::string&)>& make) {
  const std::string temporary = begin_directory(output_dir, name);
  make(temporary);
  commit_directory(temporary, output_dir + "/" + name);
}

}  // namespace temper::train
