// JSON schemas (draft 2020-12): the keywords that restrict values, the values, and their places.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"

namespace temper::grammar {

// A keyword that restricts values of one type alone.
struct TypedKeyword {
  const char* name;
  const char* type;
};
inline constexpr std::array kTypedKeywords = std::to_array<TypedKeyword>({
    {"properties", "object"},
    {"required", "object"},
    {"patternProperties", "object"},
    {"additionalProperties", "object"},
    {"unevaluatedProperties", "object"},
    {"propertyNames", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"unevaluatedItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
});

// XGrammar passes over these without a word.
inline constexpr std::array kUnheldKeywords = std::to_array<const char*>(
    {"not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems",
     "dependentRequired", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"});

// XGrammar reads the first of these that is there, and nothing else beside it.
inline constexpr std::array kWholeKeywords =
    std::to_array<const char*>({"$ref", "const", "enum", "anyOf", "oneOf", "allOf"});

// XGrammar takes schemas that differ in nothing but members of these names for the same one, even
// where they are names of properties.
inline constexpr std::array kAnnotations =
    std::to_array<std::string_view>({"title", "default", "description", "examples", "deprecated",
                                     "readOnly", "writeOnly", "$comment", "$schema"});

// Formats of strings that XGrammar knows; it takes any other for a plain string.
inline constexpr std::array kFormats = std::to_array<std::string_view>(
    {"email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri",
     "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"});

// The expression for a `format` of JSON schema; empty where XGrammar's own is used. An expression
// accepts less than the format's RFC where that is not a regular language or has no length limit:
// labels of host names have at most 35 characters, seconds are at most 59.
std::string format_pattern(const std::string& format);

// A value's JSON for messages, cut where it is long.
std::string quote(const Json& value);

// The JSON pointer of a member.
std::string within(const std::string& place, std::string name);
std::string within(const std::string& place, size_t index);

// Whether a value is of a type of JSON schema ("integer": 3.0 too).
bool is_of(const Json& value, const std::string& type);
// Whether every value of `type` is of one of the types.
bool includes(const std::vector<std::string>& types, const std::string& type);

// Whether all that a schema describes is of one of the types, as far as that is easily seen.
bool all_of(const Json& schema, const std::vector<std::string>& types);

// A member, null where there is none; and the number of its members or items.
const Json* find(const Json& schema, const char* key);
size_t size_of(const Json& schema, const char* key);

// Whether it is the name of an annotation (kAnnotations).
bool is_annotation(const std::string& name);
// Whether a member somewhere in the value has such a name.
bool names_annotation(const Json& value);

}  // namespace temper::grammar
