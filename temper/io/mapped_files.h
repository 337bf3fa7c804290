// Files whose bytes stay mapped while the program runs: a frozen model is read where its file lies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace temper {

// The mapped files, each as it was when it was opened. Writing into a file that is mapped changes
// the mapped bytes, and cutting it short kills the program at the next read; replacing it by
// another (as download and save tools do) leaves the mapping as it was.
class MappedFiles {
 public:
  struct File {
    std::string path;
    uint64_t device = 0, inode = 0;
    int64_t size = 0, seconds = 0, nanoseconds = 0;  // size in bytes; time of the last write
    std::vector<std::weak_ptr<const void>> owners;   // owners of the tensors mapped from the file
  };
  // The file as it is now. Throws DataError where there is none.
  static File look_at(const std::string& path);
  void add(File file) { files_.push_back(std::move(file)); }
  const std::vector<File>& files() const { return files_; }

  // Whether a file from which something is still mapped was written to since it was opened. Cheap:
  // one look at each file's size and time.
  bool changed() const;
  // Throws RunError that names the file.
  void check_unchanged() const;

 private:
  const File* first_changed() const;
  std::vector<File> files_;
};

}  // namespace temper
