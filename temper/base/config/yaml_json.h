// YAML values as JSON, and back.
#pragma once

#include "temper/base/config/yaml.h"
#include "temper/base/json.h"

namespace temper {

// An unquoted scalar that JSON reads as a number, true or false becomes that value; every other
// scalar becomes a string.
Json json_of(const YamlNode& node);
YamlNode yaml_of(const Json& value);

}  // namespace temper
