#include "temper/data/read/row_set.h"

#include <glob.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "temper/base/config/row_names.h"
#include "temper/base/error.h"
#include "temper/data/images/row_files.h"
#include "temper/data/read/hub_dataset.h"
#include "temper/data/read/row_list.h"
#include "temper/data/read/table_text.h"
#include "temper/data/rows/row_fields.h"
#include "temper/data/rows/row_groups.h"
#include "temper/data/rows/row_texts.h"
#include "temper/data/tools/row_split.h"

namespace temper::data {
namespace {
namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 512;  // each stays open

std::vector<std::string> files_of_directory(const std::string& path) {
  std::vector<std::string> files;
  std::error_code problem;
  for (fs::directory_iterator it(path, problem), end; !problem && it != end; it.increment(problem))
    if (!fs::is_directory(it->path()) && holds_rows(it->path().string()))
      files.push_back(it->path().string());
  check<DataError>(!problem, path, ": cannot read the directory: ", problem.message());
  check<DataError>(
      !files.empty(), path,
      ": no file of rows in this directory (.jsonl, .ndjson, .parquet, .tfrecord, .csv, "
      ".tsv, a list in .json, .jsonl.gz, .jsonl.zst)");
  return files;
}

std::vector<std::string> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> files;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i)
      if (!fs::is_directory(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  check<DataError>(!files.empty(), pattern, ": no file matches this pattern");
  return files;
}

// 64 bits of the text and the seed (FNV-1a, mixed as in SplitMix64).
uint64_t hash_of(std::string_view text, uint64_t seed) {
  while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash += (seed + 1) * 0x9e3779b97f4a7c15;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace

bool is_row_file(const std::string& name) {
  return !name.starts_with(".") && (name.ends_with(".json") || is_row_name(name));
}

namespace {

constexpr size_t kLooksAt = size_t{1} << 20;  // bytes

// Whether a file is JSON Lines, judged by its beginning: an object on the first line, another one
// on the second. Configs are one object.
bool is_json_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLooksAt, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t end = text.find('\n');
  if (end == text.npos || !text.starts_with('{')) return false;
  const size_t last = text.find_last_not_of(" \t\r\n", end),
               next = text.find_first_not_of(" \t\r\n", end);
  return text[last] == '}' && next != text.npos && text[next] == '{';
}

}  // namespace

bool holds_rows(const std::string& path) {
  return is_row_file(fs::path(path).filename().string()) &&
         (!path.ends_with(".json") || is_table_text(path) || is_json_lines(path));
}

std::vector<std::string> find_row_files(const std::string& path) {
  std::error_code none;
  std::vector<std::string> files;
  if (fs::is_directory(path, none))
    files = files_of_directory(path);
  else if (fs::exists(path, none))
    return {path};
  else if (path.find_first_of("*?[") != std::string::npos)
    files = files_of_pattern(path);
  else if (const std::optional<DatasetId> dataset = parse_dataset_id(path))
    files = dataset_files(*dataset);
  else
    return {path};
  std::sort(files.begin(), files.end());
  check<DataError>(files.size() <= kMaxFiles, path, ": ", files.size(), " files; at most ",
                   kMaxFiles, " make one source; join them, or name several sources");
  return files;
}

RowSet::RowSet(const SourceSpec& spec)
    : path_(spec.path), columns_(spec.columns), format_(spec.format) {
  const std::vector<std::string> files = find_row_files(path_);
  for (const std::string& file : files) {
    first_.push_back(size_);
    files_.push_back(std::make_unique<RowFile>(file, files.size() > 1));
    size_ += files_.back()->size();
    if (spec.limit && size_ >= *spec.limit) break;
  }
  if (spec.limit) size_ = std::min(size_, *spec.limit);
  check<DataError>(size_ > 0, path_, ": no rows");
  if (spec.held_out.fraction > 0) choose(spec.held_out, spec.only_held_out);
  if (spec.balance && !spec.only_held_out) balance(*spec.balance);
  if (spec.pieces) split(spec.pieces);
}

Json RowSet::renamed_row(int64_t row) const {
  Json json = this->row(row);
  rename_columns(json, columns_.value_or(std::map<std::string, std::string>()), where(row));
  return json;
}

std::vector<bool> RowSet::held_out_rows(const HeldOut& held_out) const {
  std::vector<bool> out;
  if (!held_out.by_line) {
    std::vector<RowHash> prompts, texts;
    each_in_order(
        size_,
        [&](int64_t i) {
          const Json row = renamed_row(i);
          const RowTexts of = texts_of(row);
          const std::string images = image_spellings(row);  // the same words about another picture
          return std::pair(hash_of_text(of.prompt + images, held_out.seed),
                           hash_of_text(of.whole() + images, held_out.seed));
        },
        [&](int64_t, const std::pair<RowHash, RowHash>& hashes) {
          prompts.push_back(hashes.first);
          texts.push_back(hashes.second);
        });
    const bool one_prompt = std::all_of(prompts.begin(), prompts.end(),
                                        [&](const RowHash& hash) { return hash == prompts[0]; });
    for (const uint8_t side : hold_out_by_hash(one_prompt ? texts : prompts, held_out.fraction))
      out.push_back(side == 1);
    return out;
  }
  std::vector<uint64_t> hashes;
  hashes.reserve(static_cast<size_t>(size_));
  for (int64_t row = 0; row < size_; ++row) {
    const Location at = place(row);
    hashes.push_back(hash_of(at.file->line(at.row), held_out.seed));
  }
  std::vector<uint64_t> order = hashes;
  const int64_t count = std::clamp<int64_t>(
      std::llround(held_out.fraction * static_cast<double>(size_)), 1, size_ - 1);
  std::nth_element(order.begin(), order.begin() + (count - 1), order.end());
  const uint64_t highest = order[static_cast<size_t>(count - 1)];
  for (const uint64_t hash : hashes) out.push_back(hash <= highest);
  return out;
}

void RowSet::choose(const HeldOut& held_out, bool only_held_out) {
  check<DataError>(size_ >= 2, path_,
                   ": found one row; data.validation_fraction needs at least two");
  const std::vector<bool> held = held_out_rows(held_out);
  for (int64_t row = 0; row < size_; ++row)
    if (held[static_cast<size_t>(row)] == only_held_out) chosen_.push_back(row);
  const auto count = std::count(held.begin(), held.end(), true);
  const double wanted = std::max(1.0, held_out.fraction * static_cast<double>(size_)),
               found = static_cast<double>(count);
  if (found > 2 * wanted || 2 * found < wanted)
    about_held_out_ =
        str(path_, ": ", count, " of ", size_, " rows are held out, where ", std::llround(wanted),
            " were to be (data.validation_fraction: ", held_out.fraction, "), as rows of the same ",
            held_out.by_line ? "text" : "prompt",
            " stay together; data.eval names rows of your own choice");
  size_ = static_cast<int64_t>(chosen_.size());
  check<DataError>(size_ > 0, path_,
                   only_held_out ? ": no row is held out" : ": no row is left to train on",
                   ", as all of them have the same text; data.validation_fraction needs rows with "
                   "at least two different texts");
}

void RowSet::balance(const RowBalance& how) {
  const RowGroups by(how.field, how.rules);
  GroupCounter counter(by);
  each_in_order(
      size_, [&](int64_t i) { return by.of(renamed_row(i), where(i)); },
      [&](int64_t i, const std::string& name) {
        if (how.on_row) how.on_row(size_);
        counter.add(name, where(i));
      });
  GroupedRows rows = counter.take();
  set_shares(rows.groups, how.targets, how.where);
  data::balance(rows.groups, how.mode);
  std::vector<int64_t> balanced = balanced_rows(rows, how.seed);
  if (!chosen_.empty())
    for (int64_t& row : balanced) row = chosen_[static_cast<size_t>(row)];
  chosen_ = std::move(balanced);
  size_ = static_cast<int64_t>(chosen_.size());
  balanced_ = std::move(rows.groups);
  check<DataError>(size_ > 0, path_, ": balancing leaves no row");
}

void RowSet::split(const Pieces& pieces) {
  std::vector<int64_t> before;
  int64_t all = 0;
  each_in_order(
      size_, [&](int64_t i) { return pieces(*this, i); },
      [&](int64_t, int64_t count) {
        before.push_back(all);
        all += count;
        split_ += count > 1;
      });
  if (split_ == 0) return;
  pieces_ = std::move(before);
  size_ = all;
}

int64_t RowSet::whole(int64_t row) const {
  if (pieces_.empty()) return row;
  return std::upper_bound(pieces_.begin(), pieces_.end(), row) - pieces_.begin() - 1;
}

int64_t RowSet::piece(int64_t row) const {
  return pieces_.empty() ? 0 : row - pieces_[static_cast<size_t>(whole(row))];
}

RowSet::Location RowSet::place(int64_t row) const {
  row = whole(row);
  if (!chosen_.empty()) row = chosen_[static_cast<size_t>(row)];
  const auto file = std::upper_bound(first_.begin(), first_.end(), row) - first_.begin() - 1;
  return {files_[static_cast<size_t>(file)].get(), row - first_[static_cast<size_t>(file)]};
}

const std::string& RowSet::file(int64_t row) const { return place(row).file->path(); }

std::string RowSet::where(int64_t row) const {
  const Location at = place(row);
  return at.file->where(at.row);
}

std::string RowSet::line(int64_t row) const {
  const Location at = place(row);
  return at.file->line(at.row);
}

Json RowSet::row(int64_t row) const {
  const Location at = place(row);
  return at.file->row(at.row);
}

int64_t RowSet::row_bytes(int64_t row) const {
  const Location at = place(row);
  const int64_t bytes = at.file->row_bytes(at.row);
  if (pieces_.empty()) return bytes;
  const auto whole = static_cast<size_t>(this->whole(row));
  const int64_t end = whole + 1 < pieces_.size() ? pieces_[whole + 1] : size_;
  return bytes / (end - pieces_[whole]) + 1;
}

std::vector<std::string> RowSet::files() const {
  std::vector<std::string> files;
  for (const auto& file : files_) files.push_back(file->path());
  return files;
}

int64_t RowSet::bytes() const {
  int64_t bytes = 0;
  for (const auto& file : files_) bytes += file->bytes();
  return bytes;
}

}  // namespace temper::data
