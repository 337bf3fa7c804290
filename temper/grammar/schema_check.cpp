#include "temper/grammar/schema_check.h"

#include <nlohmann/json.hpp>

namespace temper::grammar {
namespace {

// XGrammar passes over these without a word.
constexpr const char* kUnheld[] = {"not",
                                   "if",
                                   "then",
                                   "else",
                                   "contains",
                                   "minContains",
                                   "maxContains",
                                   "uniqueItems",
                                   "dependentRequired",
                                   "dependentSchemas"};
constexpr const char* kSchema[] = {
    "items",           "additionalProperties", "unevaluatedProperties",
    "additionalItems", "unevaluatedItems",     "propertyNames"};
constexpr const char* kList[] = {"prefixItems", "anyOf", "oneOf", "allOf", "items"};
constexpr const char* kMap[] = {"properties", "patternProperties", "$defs", "definitions"};

}  // namespace

std::string unheld_keyword(const Json& schema) {
  if (!schema.is_object()) return {};
  for (const char* key : kUnheld)
    if (schema.contains(key) && schema[key] != false) return key;
  const auto in_all = [](const Json& schemas) {
    for (const Json& one : schemas)
      if (std::string key = unheld_keyword(one); !key.empty()) return key;
    return std::string();
  };
  for (const char* key : kSchema)
    if (schema.contains(key))
      if (std::string found = unheld_keyword(schema[key]); !found.empty()) return found;
  for (const char* key : kList)
    if (schema.contains(key) && schema[key].is_array())
      if (std::string found = in_all(schema[key]); !found.empty()) return found;
  for (const char* key : kMap)
    if (schema.contains(key) && schema[key].is_object())
      if (std::string found = in_all(schema[key]); !found.empty()) return found;
  return {};
}

}  // namespace temper::grammar
