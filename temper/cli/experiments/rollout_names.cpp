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

// What a run read, looked up by names in its files, which lay in one of `directories`.
class ReadNames {
 public:
  ReadNames(const std::vector<std::string>& directories, const ReadImages& read)
      : directories_(directories) {
    for (const auto& image : read)
      by_file_name_[fs::path(image.first).filename()].push_back(&image);
  }

  // The digests of what was read by this name: by the same path, else, as one of them may be
  // relative to a place that is not known, by those that end most alike. Empty: nothing of the file
  // name.
  const std::set<std::string>& digests_of(const std::string& name) {
    const auto [known, is_new] = digests_.try_emplace(name);
    if (is_new) known->second = find(name);
    return known->second;
  }

 private:
  std::set<std::string> find(const std::string& name) const {
    std::set<std::string> found;
    const auto images = by_file_name_.find(fs::path(name).filename());
    if (images == by_file_name_.end()) return found;
    const auto add = [&](const std::set<std::string>& digests) {
      found.insert(digests.begin(), digests.end());
    };
    for (const std::string& directory : directories_) {
      const fs::path whole = (fs::path(directory) / name).lexically_normal();
      for (const auto* image : images->second)
        if (fs::path(image->first).lexically_normal() == whole) add(image->second);
    }
    if (!found.empty()) return found;
    int64_t most = 1;
    for (const auto* image : images->second) {
      const int64_t alike = shared_end(image->first, name);
      if (alike < most) continue;
      if (alike > most) found.clear();
      most = alike;
      add(image->second);
    }
    return found;
  }

  const std::vector<std::string>& directories_;
  std::map<fs::path, std::vector<const ReadImages::value_type*>> by_file_name_;
  std::map<std::string, std::set<std::string>> digests_;  // by name
};

// As the recorded file names them, line by line.
std::string named_as(const std::string& recorded, const std::string& path,
                     const std::vector<std::string>& directories, const ReadImages& read) {
  data::LineReader lines(recorded);
  ReadNames names_of_run(directories, read);
  std::map<std::string, std::string> digests;  // by name in `path`
  const auto digest_of = [&](const std::string& name) -> const std::string& {
    const auto [known, is_new] = digests.try_emplace(name);
    const fs::path file = fs::path(path).parent_path() / name;
    if (is_new && is_file(file.string())) known->second = sha256_of_file(file.string());
    return known->second;
  };
  const auto is_same = [&](const std::string& name, const std::string& of_run) {
    if (of_run.starts_with(kKept)) return name == of_run;
    const std::set<std::string>& expected = names_of_run.digests_of(of_run);
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
