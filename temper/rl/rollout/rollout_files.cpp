#include "temper/rl/rollout/rollout_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/read/compress.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/read/row_set.h"
#include "temper/rl/rollout/rollout_lines.h"

namespace temper::rl {
namespace {
namespace fs = std::filesystem;

constexpr const char *kPlainEnding = ".jsonl", *kPackedEnding = ".jsonl.zst", *kImages = "images";

// N of step-N.jsonl or step-N.jsonl.zst; nullopt: another name.
std::optional<int64_t> step_of_file(std::string name) {
  constexpr size_t kMostDigits = 18;
  const char* const ending = name.ends_with(kPackedEnding) ? kPackedEnding : kPlainEnding;
  if (!name.starts_with("step-") || !name.ends_with(ending)) return {};
  name = name.substr(5, name.size() - 5 - std::string(ending).size());
  if (name.empty() || name.size() > kMostDigits ||
      name.find_first_not_of("0123456789") != std::string::npos)
    return {};
  return std::stoll(name);
}

std::multimap<int64_t, fs::path> files_by_step(const std::string& directory) {
  std::multimap<int64_t, fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored))
    if (const auto step = step_of_file(entry.path().filename().string()))
      files.emplace(*step, entry.path());
  return files;
}

// What looks like a SHA-256 in a text: 64 hexadecimal digits between others.
std::set<std::string> digests_in(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr size_t kDigest = 64;
  std::set<std::string> found;
  for (size_t at = text.find_first_of(kDigits); at != text.npos;) {
    const size_t end = std::min(text.find_first_not_of(kDigits, at), text.size());
    if (end - at == kDigest) found.emplace(text.substr(at, kDigest));
    at = text.find_first_of(kDigits, end);
  }
  return found;
}

// Throws Error.
std::set<std::string> digests_in_file(const std::string& path) {
  std::set<std::string> found;
  data::LineReader lines(path);
  for (std::string line; lines.next(line);) found.merge(digests_in(line));
  return found;
}

}  // namespace

std::optional<RolloutRetention> RolloutRetention::parse(const std::string& text) {
  if (text == "all") return RolloutRetention{};
  if (text == "none") return RolloutRetention{Kind::kNone, 0};
  const size_t space = text.find(' ');
  const std::string word = text.substr(0, space);
  if (space == std::string::npos || (word != "every" && word != "last")) return {};
  const size_t digits = text.find_first_not_of(' ', space);
  if (digits == std::string::npos) return {};
  RolloutRetention found{word == "every" ? Kind::kEvery : Kind::kLast, 0};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + digits, end, found.count);
  if (error != std::errc() || at != end || found.count < 1) return {};
  return found;
}

int64_t RolloutRetention::files_of(int64_t batches) const {
  switch (kind) {
    case Kind::kNone:
      return 0;
    case Kind::kEvery:
      return batches / count;
    case Kind::kLast:
      return std::min(batches, count);
    case Kind::kAll:
      break;
  }
  return batches;
}

bool RolloutRetention::writes(int64_t batch) const {
  return kind == Kind::kEvery ? batch % count == 0 : kind != Kind::kNone;
}

std::map<int64_t, std::string> rollout_files(const std::string& output_dir) {
  std::map<int64_t, std::string> files;
  for (const auto& [step, path] : files_by_step(output_dir + "/rollouts")) {
    std::string& file = files[step];  // of two, which a killed run may leave, the plain one
    if (file.empty() || path.string() < file) file = path.string();
  }
  return files;
}

RolloutFiles::RolloutFiles(std::string output_dir, RolloutRetention retention, bool compress)
    : directory_(std::move(output_dir) + "/rollouts"), retention_(retention), compress_(compress) {}

// Keeps an image without a file. Its name, relative to the directory of the files.
std::string RolloutFiles::keep(const Image& image) const {
  const std::string bytes = image.bytes(),
                    name = str(kImages, "/", image.digest(), ".", image_kind(bytes));
  if (const fs::path path = fs::path(directory_) / name; !fs::exists(path)) {
    fs::create_directories(path.parent_path());
    write_file_atomic(path.string(), bytes);
  }
  return name;
}

std::string RolloutFiles::write(int64_t batch, int64_t step,
                                const std::vector<EpisodeGroup>& groups) {
  if (!retention_.writes(batch)) return {};
  fs::create_directories(directory_);
  std::string lines;
  std::set<std::string> kept;
  const auto name_of = [&](const Image& image) {
    if (!image.path().empty()) return fs::proximate(image.path(), directory_).string();
    kept.insert(image.digest());
    return keep(image);
  };
  for (const EpisodeGroup& group : groups)
    for (const Episode& e : group.episodes) lines += to_line(group, e, false, name_of) + "\n";
  const std::string path =
      str(directory_, "/step-", step, compress_ ? kPackedEnding : kPlainEnding);
  write_file_atomic(path, compress_ ? data::compress_zstd(lines) : lines);
  std::error_code ignored;
  // Removes the step's file in the other form, which is there if the config has changed.
  fs::remove(str(directory_, "/step-", step, compress_ ? kPlainEnding : kPackedEnding), ignored);
  if (retention_.kind != RolloutRetention::Kind::kLast) return path;
  named_[path] = std::move(kept);
  const std::multimap<int64_t, fs::path> files = files_by_step(directory_);
  int64_t surplus = std::ssize(files) - retention_.count;
  for (auto file = files.begin(); surplus > 0; ++file, --surplus) {
    fs::remove(file->second, ignored);
    named_.erase(file->second.string());
  }
  remove_unnamed_images();
  return path;
}

// What a kill leaves behind is removed with the next batch. Where a file cannot be read nothing is.
void RolloutFiles::remove_unnamed_images() {
  std::error_code ignored;
  std::map<std::string, std::vector<fs::path>> images;  // by digest
  for (const auto& entry : fs::directory_iterator(fs::path(directory_) / kImages, ignored))
    if (const std::string name = entry.path().filename().string(); digests_in(name).size() == 1)
      images[name.substr(0, name.find('.'))].push_back(entry.path());
  if (images.empty()) return;
  for (const auto& entry : fs::directory_iterator(directory_, ignored)) {
    const std::string path = entry.path().string();
    if (!data::is_row_file(path)) continue;
    if (!named_.contains(path)) {
      try {
        named_[path] = digests_in_file(path);
      } catch (const Error&) {
        named_.erase(path);
        return;
      }
    }
    for (const std::string& digest : named_[path]) images.erase(digest);
  }
  for (const auto& [digest, paths] : images)
    for (const fs::path& path : paths) fs::remove(path, ignored);
}

void RolloutFiles::remove_after(int64_t step) const {
  std::error_code ignored;
  for (const auto& [of_step, path] : files_by_step(directory_))
    if (of_step > step) fs::remove(path, ignored);
}

}  // namespace temper::rl
