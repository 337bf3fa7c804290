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
  static constexpr int64_t kEnumValues = 5000;  // of all `enum`s together
  static constexpr int64_t kProperties = 1000;  // of all objects together
  static constexpr int64_t kOptional = 500;     // properties of one object that may be absent
  static constexpr int64_t kCounted = 100;      // properties beside minProperties, maxProperties
  static constexpr int64_t kSchemas = 2000;     // in all
  static constexpr int64_t kDepth = 100;        // schemas within each other
  static constexpr int64_t kCount = 1000000;    // minLength, maxItems and the like
  static constexpr int64_t kPatternBytes = int64_t{16} << 10;  // of all patterns together
};

// The text to compile, equal in meaning. Throws ConfigError ("WHERE: ..") that names the keyword
// and its place, "#/properties/a", for what is malformed, what completions cannot be held to, and
// what is over the limits.
std::string checked_schema(const Json& schema, const std::string& text, const std::string& where);

}  // namespace temper::grammar
