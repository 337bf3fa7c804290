#include "temper/train/manifest/changed_images.h"

#include <filesystem>

#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "temper/data/read/row_set.h"

namespace temper::train {
namespace {

// The folder that paths in rows of a source are relative to.
std::string folder_of_rows(const std::string& path) {
  const bool is_folder = !data::is_row_file(path) && path.find_first_of("*?[") == path.npos;
  return is_folder ? path : std::filesystem::path(path).parent_path().string();
}

std::string moved_path(const std::string& path, const std::vector<data::DataSource>& from,
                       const std::vector<data::DataSource>& to) {
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    if (from[i].path == to[i].path) continue;
    const std::string old = folder_of_rows(from[i].path);
    const bool beneath = old.empty() ? !path.starts_with("/") : path.starts_with(old + "/");
    if (!beneath) continue;
    const std::string rest = old.empty() ? path : path.substr(old.size() + 1);
    return (std::filesystem::path(folder_of_rows(to[i].path)) / rest).string();
  }
  return path;
}

}  // namespace

std::vector<std::pair<const ManifestLine*, std::string>> changed_images(
    const std::vector<const ManifestLine*>& lines, const data::DataSection& recorded,
    const data::DataSection& now) {
  std::vector<std::pair<const ManifestLine*, std::string>> changed;
  for (const ManifestLine* line : lines)
    for (const auto& [recorded_path, expected] : images_of_line(*line)) {
      const std::string path = moved_path(recorded_path, recorded.train, now.train);
      if (!is_file(path)) {
        changed.emplace_back(line, path + ": the image is not there");
        continue;
      }
      const std::string digest = sha256_of_file(path);
      if (digest != expected)
        changed.emplace_back(
            line, str(path, ": its SHA-256 is ", digest, ", that of the run's was ", expected));
    }
  return changed;
}

}  // namespace temper::train
