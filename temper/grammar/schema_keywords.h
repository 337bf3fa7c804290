// The keywords of JSON schemas (draft 2020-12) that restrict values.
#pragma once

#include <array>
#include <string_view>

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

}  // namespace temper::grammar
