// A value inside a JSON file together with its place ("FILE: model.unk_token"), so that every
// complaint names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"

namespace temper {

// Made from a whole document, and from there for its parts; refers to the Json. All readers throw
// DataError when the value is of another kind.
class JsonField {
 public:
  JsonField(const Json& document, std::string file) : JsonField(document, std::move(file), ": ") {}

  const std::string& where() const { return where_; }
  JsonField operator[](std::string_view key) const;           // throws if the key is absent
  std::optional<JsonField> find(std::string_view key) const;  // none when absent or null
  std::vector<JsonField> items() const;                       // the elements of an array

  std::string text() const;
  bool flag() const;
  bool is_zero() const;  // the number 0
  int64_t integer(int64_t low, int64_t high) const;
  bool flag_or(std::string_view key, bool absent) const;
  char32_t character() const;  // a string of one character

  // The object's "type"; what selects a component.
  std::string type() const;
  // Throws DataError: this component is known to nobody here. `role` is "normalizer", "decoder" ...
  [[noreturn]] void unsupported(std::string_view role) const;
  [[noreturn]] void fail(std::string_view what) const;

 private:
  JsonField(const Json& value, std::string where, const char* separator)
      : value_(&value), where_(std::move(where)), separator_(separator) {}
  JsonField member(const Json& value, std::string_view key) const;

  const Json* value_;
  std::string where_;
  const char* separator_;  // between where_ and a member's key
};

}  // namespace temper
