#include "temper/data/read/column_types.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper::data {
namespace {

using ColumnKind = ColumnType::Kind;

constexpr std::array kKindNames = {"null", "true or false", "a whole number", "a number",
                                   "text", "a list",        "an object"};

ColumnKind kind_of_value(const Json& value, const std::string& path, const std::string& where) {
  if (value.is_boolean()) return ColumnKind::kBool;
  // Whole numbers beyond 64 bits are kept as their digits.
  check<DataError>(!value.is_binary() &&
                       !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}),
                   where, ": `", path, "`: found ", dump_json(value),
                   "; Parquet's whole numbers have 64 bits");
  if (value.is_number_integer()) return ColumnKind::kInteger;
  if (value.is_number()) return ColumnKind::kNumber;
  if (value.is_string()) return ColumnKind::kText;
  return value.is_array() ? ColumnKind::kList : ColumnKind::kRecord;
}

bool are_numbers(ColumnKind a, ColumnKind b) {
  const auto is_number = [](ColumnKind kind) {
    return kind == ColumnKind::kInteger || kind == ColumnKind::kNumber;
  };
  return is_number(a) && is_number(b);
}

}  // namespace

void ColumnType::add(const Json& value, const std::string& path, const std::string& where) {
  if (value.is_null()) return;
  const Kind found = kind_of_value(value, path, where);
  if (kind == Kind::kNull)
    kind = found;
  else if (are_numbers(kind, found))
    kind = std::max(kind, found);
  check<DataError>(kind == found || are_numbers(kind, found), where, ": `", path, "` is ",
                   kKindNames[static_cast<size_t>(found)], ", and in earlier rows ",
                   kKindNames[static_cast<size_t>(kind)],
                   "; a column of Parquet has one type, lines of JSON may have several");
  if (found == Kind::kList) {
    if (!item) item = std::make_shared<ColumnType>();
    for (const Json& element : value) item->add(element, path + "[]", where);
  }
  if (found != Kind::kRecord) return;
  for (const auto& [name, member] : value.items()) {
    const auto known = std::find_if(fields.begin(), fields.end(),
                                    [&name = name](const auto& f) { return f.name == name; });
    ColumnType& type =
        known != fields.end() ? known->type : fields.emplace_back(ColumnField{name, {}}).type;
    type.add(member, path.empty() ? name : path + "." + name, where);
  }
}

Json ColumnType::to_json() const {
  constexpr std::array kNames = {"string", "bool", "int64", "double", "string"};
  if (kind == Kind::kList) return Json::array({item ? item->to_json() : Json("string")});
  if (kind != Kind::kRecord) return kNames[static_cast<size_t>(kind)];
  Json out = Json::object();
  for (const auto& [name, type] : fields) out[name] = type.to_json();
  return out;
}

}  // namespace temper::data
