#include "temper/base/config/find_field.h"

#include <nlohmann/json.hpp>
#include <string>

namespace temper {

const Json* find_field(const Json& row, std::string_view name) {
  if (!row.is_object()) return nullptr;
  if (const auto found = row.find(std::string(name)); found != row.end()) return &*found;
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    const auto outer = row.find(std::string(name.substr(0, dot)));
    if (outer == row.end()) continue;
    if (const Json* inner = find_field(*outer, name.substr(dot + 1))) return inner;
  }
  return nullptr;
}

}  // namespace temper
