// Values in JSON schemas, and places of them.
#pragma once

#include <string>
#include <vector>

#include "temper/base/json.h"

namespace temper::grammar {

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
