// The types of the columns of a table that holds rows of JSON.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/base/json.h"

namespace temper::data {

struct ColumnField;

// kNull: no row has a value yet. kNumber holds whole numbers, too.
struct ColumnType {
  enum class Kind { kNull, kBool, kInteger, kNumber, kText, kList, kRecord };
  Kind kind = Kind::kNull;
  std::vector<ColumnField> fields;   // of a record
  std::shared_ptr<ColumnType> item;  // of a list

  // Widens the type so that it holds this value, too. Throws DataError "WHERE: ..." where a column
  // holds values of two types: `path` names it.
  void add(const Json& value, const std::string& path, const std::string& where);
  // "bool", "int64", "double", "string" (also of kNull), [TYPE] of a list, {"name": TYPE} of a
  // record.
  Json to_json() const;
};

struct ColumnField {
  std::string name;
  ColumnType type;
};

}  // namespace temper::data
