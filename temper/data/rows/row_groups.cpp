#include "temper/data/rows/row_groups.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/data/rows/row_fields.h"

namespace temper::data {

RowGroups::RowGroups(std::string field, const std::string& rules)
    : field_(std::move(field)), file_(rules) {
  check<ConfigError>(field_.empty() || file_.empty(),
                     "rows are grouped by a field or by rules, not by both");
  if (!field_.empty()) return;
  if (!file_.empty()) read_ = std::make_unique<DomainRules>(DomainRules::read(file_));
  rules_ = read_ ? read_.get() : &DomainRules::builtin();
}

std::string RowGroups::described() const {
  if (rules_) return file_.empty() ? "built-in domains" : file_;
  return "field `" + field_ + "`";
}

std::vector<std::string> RowGroups::names() const {
  return rules_ ? rules_->names() : std::vector<std::string>();
}

bool RowGroups::has(const Json& row) const {
  const Json* const value = rules_ ? nullptr : find_field(row, field_);
  return rules_ || (value && !value->is_null());
}

std::string RowGroups::of(const Json& row, const std::string& where) const {
  if (rules_) return rules_->names()[rules_->domain_of(texts_of(row), where)];
  const Json* const value = find_field(row, field_);
  check<DataError>(value != nullptr, where, ": no `", field_, "`; the row has ", field_names(row));
  check<DataError>(!value->is_null() && !value->is_structured(), where, ": `", field_, "`: found ",
                   dump_json(*value).substr(0, 60), ", expected text, a number, true or false");
  return value->is_string() ? value->get<std::string>() : dump_json(*value);
}

GroupCounter::GroupCounter(const RowGroups& by)
    : described_(by.described()), ordered_(!by.names().empty()) {
  for (const std::string& name : by.names()) {
    numbers_.emplace(name, static_cast<uint32_t>(numbers_.size()));
    found_.groups.push_back({.name = name});
  }
}

void GroupCounter::add(const std::string& name, const std::string& where) {
  constexpr size_t kMostGroups = 1000;
  const auto [at, is_new] = numbers_.emplace(name, static_cast<uint32_t>(numbers_.size()));
  if (is_new) found_.groups.push_back({.name = name});
  check<ConfigError>(found_.groups.size() <= kMostGroups, where, ": ", described_,
                     " has more than ", kMostGroups, " different values");
  ++found_.groups[at->second].rows;
  found_.of_row.push_back(at->second);
}

GroupedRows GroupCounter::take() {
  if (ordered_) return std::move(found_);
  std::vector<uint32_t> place(found_.groups.size());
  uint32_t next = 0;
  for (const auto& [name, number] : numbers_) place[number] = next++;
  for (uint32_t& number : found_.of_row) number = place[number];
  std::sort(found_.groups.begin(), found_.groups.end(),
            [](const BalanceGroup& a, const BalanceGroup& b) { return a.name < b.name; });
  return std::move(found_);
}

}  // namespace temper::data
