#include "temper/cli/experiments/rollout_names.h"

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "temper/base/json.h"
#include "temper/base/sha256.h"
#include "temper/data/read/compress.h"
#include "temper/data/read/jsonl.h"

namespace temper::cli {
namespace {
namespace fs = std::filesystem;

constexpr const char *kImages = "images", *kKept = "images/";

// The lines of a rollout file. `rename` changes the names of a line's images.
std::string renamed_lines(const std::string& path, const std::function<void(Json&)>& rename) {
  data::LineReader lines(path);
  std::string out;
  for (std::string line; lines.next(line); out += line + "\n") {
    const Json row = data::parse_row(line, path);
    const auto images = row.find(kImages);
    Json names = images == row.end() ? Json::array() : *images;
    rename(names);
    if (images == row.end() || names == *images) continue;
    // In the text, as numbers would not be written again with the same digits.
    const std::string old = dump_json(*images);
    if (const size_t at = line.find(old); at != line.npos)
      line.replace(at, old.size(), dump_json(names));
  }
  return out;
}

bool has_digest(const std::string& lines, const std::string& path, const std::string& digest) {
  return sha256_hex(path.ends_with(".zst") ? data::compress_zstd(lines) : lines) == digest;
}

// As the recorded file names them, line by line.
std::string named_as(const std::string& recorded, const std::string& path) {
  data::LineReader lines(recorded);
  return renamed_lines(path, [&](Json& names) {
    std::string line;
    if (!lines.next(line)) return;
    const Json row = data::parse_row(line, recorded);
    const Json of_run = row.value(kImages, Json::array());
    if (!of_run.is_array() || of_run.size() != names.size()) return;
    for (size_t i = 0; i < names.size(); ++i)
      if (of_run[i].is_string() && fs::path(of_run[i].get<std::string>()).filename() ==
                                       fs::path(names[i].get<std::string>()).filename())
        names[i] = of_run[i];
  });
}

}  // namespace

std::string named_from(const std::string& path, const std::string& directory) {
  const fs::path own = fs::path(path).parent_path();
  return renamed_lines(path, [&](Json& names) {
    for (Json& name : names)
      if (const std::string old = name.get<std::string>(); !old.starts_with(kKept))
        name = fs::proximate((own / old).lexically_normal(), directory).string();
  });
}

bool is_recorded_rollout(const std::string& again, const std::string& digest,
                         const std::vector<std::string>& directories, const std::string& recorded) {
  for (const std::string& directory : directories)
    if (has_digest(named_from(again, directory), again, digest)) return true;
  return !recorded.empty() && has_digest(named_as(recorded, again), again, digest);
}

}  // namespace temper::cli
