#include "temper/io/mapped_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "temper/base/error.h"

namespace temper {

MappedFiles::File MappedFiles::look_at(const std::string& path) {
  struct stat status{};
  check<DataError>(::stat(path.c_str(), &status) == 0, path,
                   ": cannot stat: ", std::strerror(errno));
  return {path,
          status.st_dev,
          status.st_ino,
          status.st_size,
          status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec,
          {}};
}

const MappedFiles::File* MappedFiles::first_changed() const {
  for (const File& file : files_) {
    if (std::all_of(file.owners.begin(), file.owners.end(),
                    [](const auto& owner) { return owner.expired(); }))
      continue;  // its tensors were copied
    struct stat now{};
    if (::stat(file.path.c_str(), &now) != 0) continue;  // removed: the mapping still holds it
    if (now.st_dev != file.device || now.st_ino != file.inode) continue;  // another file by now
    if (now.st_size != file.size || now.st_mtim.tv_sec != file.seconds ||
        now.st_mtim.tv_nsec != file.nanoseconds)
      return &file;
  }
  return nullptr;
}

bool MappedFiles::changed() const { return first_changed() != nullptr; }

void MappedFiles::check_unchanged() const {
  const File* file = first_changed();
  check(!file, file ? file->path : "",
        ": was modified while this run reads its weights from it, so what the run computes since "
        "is not that model's; start again, and write new models to a directory of their own");
}

}  // namespace temper
