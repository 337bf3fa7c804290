#include "temper/base/config/yaml_json.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper {

Json json_of(const YamlNode& node) {
  Json out;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      break;
    case YamlNode::Kind::kScalar:
      if (!node.quoted) {
        try {
          out = parse_json(node.text, "value");
          if (!out.is_structured() && !out.is_string()) return out;
        } catch (const DataError&) {
          // Not JSON: a string.
        }
      }
      return node.text;
    case YamlNode::Kind::kList:
      out = Json::array();
      for (const YamlNode& item : node.items) out.push_back(json_of(item));
      break;
    case YamlNode::Kind::kMap:
      out = Json::object();
      for (const YamlNode::Entry& entry : node.entries) out[entry.key] = json_of(entry.value);
  }
  return out;
}

YamlNode yaml_of(const Json& value) {
  if (value.is_null()) return YamlNode::null();
  if (value.is_string()) return YamlNode::scalar(value.get<std::string>(), true);
  if (!value.is_structured()) return YamlNode::scalar(dump_json(value));
  if (value.is_array()) {
    std::vector<YamlNode> items;
    for (const Json& item : value) items.push_back(yaml_of(item));
    return YamlNode::list(std::move(items));
  }
  YamlNode map = YamlNode::map();
  for (const auto& [key, item] : value.items())
    map.entries.push_back({.key = key, .origin = {}, .value = yaml_of(item), .comment = {}});
  return map;
}

}  // namespace temper
