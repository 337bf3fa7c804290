#include "temper/data/images/row_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "temper/base/error.h"
#include "temper/base/sha256.h"
#include "temper/data/images/image_fields.h"

namespace temper::data {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kDigest = "sha256:";

// The path in a SOURCE, null where it is the picture itself.
const std::string* path_in(const Json& source) {
  if (source.is_object()) {
    const auto bytes = source.find("bytes");
    if (bytes != source.end() && !bytes->is_null()) return nullptr;
    const auto path = source.find("path");
    return path == source.end() ? nullptr : path->get_ptr<const std::string*>();
  }
  const auto* const text = source.get_ptr<const std::string*>();
  return !text || is_data_uri(*text) || text->find("://") != text->npos ? nullptr : text;
}

// ".." leads up from there. Empty: this process's.
fs::path real_directory(const std::string& directory) {
  return fs::weakly_canonical(fs::absolute(directory.empty() ? "." : directory));
}

std::string digest_of(const Json& source, const std::string& directory) {
  try {
    return std::string(kDigest) + sha256_hex(read_image_bytes(image_source(source), directory));
  } catch (const Error&) {
    const std::string* const path = path_in(source);
    return path ? (fs::path(directory) / *path).lexically_normal().string() : dump_json(source);
  }
}

}  // namespace

std::string replace_images_by_digests(Json& row, const Columns& columns,
                                      const std::string& directory) {
  std::string all;
  each_image_source(row, columns, [&](Json& source) {
    if (source.is_string() && source.get_ref<const std::string&>().starts_with(kDigest)) return;
    source = digest_of(source, directory);
    all += source.get_ref<const std::string&>() + "\n";
  });
  return all;
}

std::string image_digests(const Json& row, const Columns& columns, const std::string& directory) {
  std::string all;
  each_image_source(row, columns,
                    [&](const Json& source) { all += digest_of(source, directory) + "\n"; });
  return all;
}

std::string image_spellings(const Json& row) {
  std::string all;
  each_image_source(row, {}, [&](const Json& source) { all += "\n" + dump_json(source); });
  return all;
}

bool move_image_paths(Json& row, const Columns& columns, const std::string& from,
                      const std::string& to) {
  const fs::path base = real_directory(from), target = real_directory(to);
  bool any = false;
  each_image_source(row, columns, [&](Json& source) {
    const std::string* const path = path_in(source);
    if (base == target || !path || path->empty() || fs::path(*path).is_absolute()) return;
    Json& place = source.is_object() ? source["path"] : source;
    place = (base / *path).lexically_normal().lexically_relative(target).string();
    any = true;
  });
  return any;
}

}  // namespace temper::data
