// Checks of JSON schemas before XGrammar compiles them: it passes over what it cannot enforce, and
// large schemas take it minutes.
#pragma once

#include <cstdint>
#include <string>

#include "temper/base/json.h"

namespace temper::grammar {

// Limits of one schema. XGrammar takes time that grows with the square of most of these: one at a
// limit compiles in seconds.
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
};

// The text to compile, equal in meaning. Throws ConfigError ("WHERE: ..") that names the keyword
// and its place, "#/properties/a", if a keyword is malformed, cannot be enforced, or is over a
// limit.
std::string checked_schema(const Json& schema, const std::string& text, const std::string& where);

}  // namespace temper::grammar
