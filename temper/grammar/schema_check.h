// Checks of JSON schemas before XGrammar compiles them: it passes over what it cannot enforce, and
// large schemas take it minutes.
#pragma once

#include <cstdint>
#include <string>

#include "temper/base/json.h"

namespace temper::grammar {

// Limits of one schema, or of several that are compiled together. XGrammar takes time that grows
// with the square of most of these: one at a limit compiles in seconds.
struct SchemaLimits {
  static constexpr int64_t kEnumValues = 5000;  // values of all `enum`s together
  static constexpr int64_t kProperties = 1000;  // properties of all objects together
  static constexpr int64_t kOptional = 500;     // properties of one object that may be absent
  // properties of one object with minProperties or maxProperties
  static constexpr int64_t kCounted = 100;
  static constexpr int64_t kSchemas = 2000;   // schemas in all, nested ones included
  static constexpr int64_t kDepth = 100;      // schemas within each other
  static constexpr int64_t kCount = 1000000;  // value of minLength, maxItems and the like
  static constexpr int64_t kPatternBytes = int64_t{16} << 10;  // bytes of all patterns together
  // bytes of all `const`, values of `enum` and names of properties together; a name beside
  // minProperties or maxProperties as often as they say
  static constexpr int64_t kLiteralBytes = int64_t{64} << 10;
  // values of minLength, maxItems and the like above kSmallCount
  static constexpr int64_t kLargeCounts = 200, kSmallCount = 1024;
};

// What counts towards the limits.
struct SchemaTotals {
  int64_t schemas = 0, properties = 0, enum_values = 0, pattern_bytes = 0, literal_bytes = 0,
          large_counts = 0, repeats = 0;
};

// The text to compile, equal in meaning. Throws ConfigError ("WHERE: ..") that names the keyword
// and its place, "#/properties/a", if a keyword is malformed, cannot be enforced, or is over a
// limit. totals: of the schemas before this one that are compiled together with it, to which its
// own are added; null: there are none.
std::string checked_schema(const Json& schema, const std::string& text, const std::string& where,
                           SchemaTotals* totals = nullptr);

}  // namespace temper::grammar
