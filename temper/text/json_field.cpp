#include "temper/text/json_field.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/text/unicode.h"

namespace temper {

void JsonField::fail(std::string_view what) const { throw DataError(str(where_, ": ", what)); }

JsonField JsonField::member(const Json& value, std::string_view key) const {
  return JsonField(value, str(where_, separator_, key), ".");
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  if (!value_->is_object()) fail(str("an object expected, found ", value_->type_name()));
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return member(*found, key);
}

JsonField JsonField::operator[](std::string_view key) const {
  const auto found = find(key);
  if (!found) fail(str("\"", key, "\" is missing"));
  return *found;
}

std::vector<JsonField> JsonField::items() const {
  if (!value_->is_array()) fail(str("an array expected, found ", value_->type_name()));
  std::vector<JsonField> out;
  for (size_t i = 0; i < value_->size(); ++i)
    out.push_back(JsonField((*value_)[i], str(where_, "[", i, "]"), "."));
  return out;
}

std::string JsonField::text() const {
  if (!value_->is_string()) fail(str("a string expected, found ", value_->type_name()));
  return value_->get<std::string>();
}

bool JsonField::flag() const {
  if (!value_->is_boolean()) fail(str("true or false expected, found ", value_->type_name()));
  return value_->get<bool>();
}

bool JsonField::is_zero() const { return value_->is_number() && value_->get<double>() == 0; }

int64_t JsonField::integer(int64_t low, int64_t high) const {
  // An unsigned number above the signed range reads as negative, and is refused by every range
  // used.
  const int64_t n = value_->is_number_integer() ? value_->get<int64_t>() : low - 1;
  if (n < low || n > high) fail(str("an integer from ", low, " to ", high, " expected"));
  return n;
}

bool JsonField::flag_or(std::string_view key, bool absent) const {
  const auto found = find(key);
  return found ? found->flag() : absent;
}

char32_t JsonField::character() const {
  const std::string s = text();
  size_t i = 0;
  const char32_t c = s.empty() ? U'\0' : next_char(s, i);
  if (s.empty() || i != s.size()) fail("a string of one character expected");
  return c;
}

std::string JsonField::type() const { return (*this)["type"].text(); }

void JsonField::unsupported(std::string_view role) const {
  fail(str(role, " of type \"", type(), "\" is not supported"));
}

}  // namespace temper
