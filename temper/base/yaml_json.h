// YAML values as JSON, and back.
#pragma once

#include "temper/base/json.h"
#include "temper/base/yaml.h"

namespace temper {

// Unquoted scalars that JSON reads as numbers, true or false are that; all others are text.
Json json_of(const YamlNode& node);
YamlNode yaml_of(const Json& value);

}  // namespace temper
