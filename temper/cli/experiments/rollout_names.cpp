#include "temper/cli/experiments/rollout_names.h"

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "temper/base/file.h"
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

// How many parts at their ends two paths share.
int64_t shared_end(const fs::path& a, const fs::path& b) {
  int64_t count = 0;
  for (auto x = a.end(), y = b.end(); x != a.begin() && y != b.begin(); ++count)
    if (*--x != *--y) break;
  return count;
}

// The digests of what the run read by a name in its file, which lay in one of `directories`: by the
// same path, else, as one of them may be relative to a place that is not known, by those that end
// most alike. Empty: nothing of the file name.
std::set<std::string> digests_of(const std::string& name,
                                 const std::vector<std::string>& directories,
                                 const ReadImages& read) {
  std::set<std::string> found;
  for (const std::string& directory : directories)
    for (const auto& [path, digests] : read)
      if (fs::path(path).lexically_normal() == (fs::path(directory) / name).lexically_normal())
        found.insert(digests.begin(), digests.end());
  if (!found.empty()) return found;
  int64_t most = 1;
  for (const auto& [path, digests] : read) {
    const int64_t alike = shared_end(path, name);
    if (alike < most) continue;
    if (alike > most) found.clear();
    most = alike;
    found.insert(digests.begin(), digests.end());
  }
  return found;
}

// As the recorded file names them, line by line.
std::string named_as(const std::string& recorded, const std::string& path,
                     const std::vector<std::string>& directories, const ReadImages& read) {
  data::LineReader lines(recorded);
  std::map<std::string, std::string> digests;  // by name in `path`
  const auto digest_of = [&](const std::string& name) -> const std::string& {
    const auto [known, is_new] = digests.try_emplace(name);
    const fs::path file = fs::path(path).parent_path() / name;
    if (is_new && is_file(file.string())) known->second = sha256_of_file(file.string());
    return known->second;
  };
  const auto is_same = [&](const std::string& name, const std::string& of_run) {
    if (of_run.starts_with(kKept)) return name == of_run;
    const std::set<std::string> expected = digests_of(of_run, directories, read);
    return expected.empty() ? fs::path(name).filename() == fs::path(of_run).filename()
                            : expected.contains(digest_of(name));
  };
  return renamed_lines(path, [&](Json& names) {
    std::string line;
    if (!lines.next(line)) return;
    const Json row = data::parse_row(line, recorded);
    const Json of_run = row.value(kImages, Json::array());
    if (!of_run.is_array() || of_run.size() != names.size()) return;
    for (size_t i = 0; i < names.size(); ++i)
      if (of_run[i].is_string() && is_same(names[i].get<std::string>(), of_run[i]))
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
                         const std::vector<std::string>& directories, const std::string& recorded,
                         const ReadImages& read) {
  for (const std::string& directory : directories)
    if (has_digest(named_from(again, directory), again, digest)) return true;
  return !recorded.empty() &&
         has_digest(named_as(recorded, again, directories, read), again, digest);
}

}  // namespace temper::cli
