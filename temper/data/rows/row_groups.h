// The groups that rows are balanced over: the values of a field, or domains by rules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/tools/balance.h"
#include "temper/data/tools/domains.h"

namespace temper::data {

class RowGroups {
 public:
  // By a field's values (text, numbers, true and false; a path like meta.domain works, too), by a
  // file of rules, or, where both are empty, by the built-in domains. Throws ConfigError.
  RowGroups(std::string field, const std::string& rules);

  // "field `F`", "rules.yaml", "built-in domains".
  std::string described() const;
  // The groups there are whatever the rows hold, in their order; of a field none.
  std::vector<std::string> names() const;
  // Whether the row is in a group: rules put every row in one, a field those that have it.
  bool has(const Json& row) const;
  // The group of a row. Throws DataError that begins with `where`. Thread-safe.
  std::string of(const Json& row, const std::string& where) const;

 private:
  std::string field_, file_;
  std::unique_ptr<DomainRules> read_;
  const DomainRules* rules_ = nullptr;
};

// Gives groups their numbers as rows come.
class GroupCounter {
 public:
  explicit GroupCounter(const RowGroups& by);
  // The next row is one of this group. Throws ConfigError for more than 1000 groups.
  void add(const std::string& name, const std::string& where);
  // Groups in the order of their rules, or a field's values in that of their bytes.
  GroupedRows take();

 private:
  std::string described_;
  bool ordered_;  // by the rules
  std::map<std::string, uint32_t> numbers_;
  GroupedRows found_;
};

}  // namespace temper::data
