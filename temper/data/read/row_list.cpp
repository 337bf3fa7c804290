#include "temper/data/read/row_list.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "temper/base/error.h"
#include "temper/data/rows/row_fields.h"

namespace temper::data {

RowList::RowList(const std::vector<std::string>& sources,
                 std::map<std::string, std::string> columns)
    : columns_(std::move(columns)) {
  std::set<std::string> seen;
  for (const std::string& source : sources) {
    first_.push_back(size_);
    sets_.push_back(std::make_unique<RowSet>(SourceSpec{source}));
    size_ += sets_.back()->size();
    for (const std::string& file : sets_.back()->files()) {
      std::error_code none;
      const std::string real = std::filesystem::canonical(file, none).string();
      check<ConfigError>(seen.insert(none ? file : real).second, file,
                         ": is named twice among the inputs");
    }
  }
}

int64_t RowList::bytes() const {
  int64_t bytes = 0;
  for (const auto& set : sets_) bytes += set->bytes();
  return bytes;
}

std::vector<std::string> RowList::files() const {
  std::vector<std::string> files;
  for (const auto& set : sets_)
    for (std::string& file : set->files()) files.push_back(std::move(file));
  return files;
}

size_t RowList::set_of(int64_t row) const {
  return static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), row) - first_.begin() -
                             1);
}

const std::string& RowList::file(int64_t row) const {
  const size_t set = set_of(row);
  return sets_[set]->file(row - first_[set]);
}

std::string RowList::where(int64_t row) const {
  const size_t set = set_of(row);
  return sets_[set]->where(row - first_[set]);
}

std::string RowList::line(int64_t row) const {
  const size_t set = set_of(row);
  return sets_[set]->line(row - first_[set]);
}

Json RowList::row(int64_t row) const {
  const size_t set = set_of(row);
  return sets_[set]->row(row - first_[set]);
}

Json RowList::renamed(int64_t row, bool only_new) const {
  Json json = this->row(row);
  if (!columns_.empty()) rename_columns(json, columns_, where(row));
  for (const auto& [name, in_file] : columns_)
    if (only_new && !columns_.contains(in_file)) json.erase(in_file);
  return json;
}

}  // namespace temper::data
