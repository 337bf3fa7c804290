#include "temper/env/tool_check.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "temper/base/error.h"

namespace temper::env {
namespace {

constexpr size_t kLongestName = 64;
constexpr std::array kTypes = std::to_array<std::string_view>(
    {"null", "boolean", "object", "array", "number", "integer", "string"});

bool is_type(const Json& type) {
  return type.is_string() &&
         std::find(kTypes.begin(), kTypes.end(), type.get<std::string>()) != kTypes.end();
}

// The problem with a schema or one within it; empty: none.
std::string problem_of_schema(const Json& schema, const std::string& key) {
  if (schema.is_boolean()) return {};
  if (!schema.is_object()) return str(key, ": found ", dump_json(schema), ", expected a schema");
  if (const auto type = schema.find("type"); type != schema.end()) {
    const bool list = type->is_array() && std::all_of(type->begin(), type->end(), is_type);
    if (!list && !is_type(*type))
      return str(key, ".type: found ", dump_json(*type), ", expected null, boolean, object, ",
                 "array, number, integer or string");
  }
  if (const auto names = schema.find("required"); names != schema.end())
    if (!names->is_array() || !std::all_of(names->begin(), names->end(),
                                           [](const Json& name) { return name.is_string(); }))
      return str(key, ".required: found ", dump_json(*names), ", expected a list of names");
  if (const auto items = schema.find("items"); items != schema.end() && !items->is_array())
    if (std::string problem = problem_of_schema(*items, key + ".items"); !problem.empty())
      return problem;
  const auto properties = schema.find("properties");
  if (properties == schema.end()) return {};
  if (!properties->is_object())
    return str(key, ".properties: found ", dump_json(*properties), ", expected a map of schemas");
  for (const auto& [name, value] : properties->items())
    if (std::string p = problem_of_schema(value, key + ".properties." + name); !p.empty()) return p;
  return {};
}

bool is_spelt(const std::string& name) {
  return name.size() <= kLongestName && std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) ||
                  std::string_view("_-.:/").find(c) != std::string_view::npos;
         });
}

}  // namespace

std::string find_parameters_problem(const Json& parameters, const std::string& key) {
  if (!parameters.is_object())
    return str(key, ": found ", dump_json(parameters), ", expected the JSON schema of an object");
  if (parameters.contains("type") && parameters["type"] != "object")
    return str(key, ": found the type ", dump_json(parameters["type"]),
               ", expected object: arguments go by their names");
  return problem_of_schema(parameters, key);
}

std::string find_tool_problem(const ToolSection& tool, const std::string& key) {
  if (tool.name.empty()) return key + ".name: missing; a call names the tool by it";
  if (!is_spelt(tool.name))
    return str(key, ".name: found ", dump_json(tool.name), ", expected at most ", kLongestName,
               " letters, digits and _ - . : /");
  return find_parameters_problem(parse_json(tool.parameters.json, key), key + ".parameters");
}

std::string find_call_problem(const ToolSection& tool, const Json& arguments) {
  if (!arguments.is_object()) return "the arguments of `" + tool.name + "` are not an object";
  const Json schema = parse_json(tool.parameters.json, "parameters");
  for (const Json& name : schema.value("required", Json::array()))
    if (!arguments.contains(name.get<std::string>()))
      return "the call of `" + tool.name + "` lacks the argument `" + name.get<std::string>() + "`";
  return {};
}

}  // namespace temper::env
