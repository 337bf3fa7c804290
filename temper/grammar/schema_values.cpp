#include "temper/grammar/schema_values.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace temper::grammar {
namespace {

constexpr size_t kQuoted = 60;  // bytes of a value that a message quotes

std::vector<std::pair<std::string, std::string>> format_patterns() {
  const auto times = [](const std::string& what, const char* count) {
    return "(?:" + what + ")" + count;
  };
  const std::string year = "(?:\\d{3}[1-9]|\\d\\d[1-9]\\d|\\d[1-9]\\d\\d|[1-9]\\d{3})";
  const std::string day =
      "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
      "02-(?:0[1-9]|1\\d|2[0-8]))";
  const std::string leap_year =
      "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
  const std::string date = "(?:" + year + "-" + day + "|" + leap_year + "-02-29)";
  const std::string minutes = "(?:[01]\\d|2[0-3]):[0-5]\\d";
  const std::string time = minutes + ":[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-]" + minutes + ")";
  const std::string byte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  const std::string ipv4 = times(byte + "\\.", "{3}") + byte;
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string ipv6 = times(group + ":", "{7}") + group + "|" + times(group + ":", "{1,7}") + ":|";
  ipv6 += times(group + ":", "{1,6}") + ":" + group + "|" + times(group + ":", "{1,5}") +
          times(":" + group, "{1,2}") + "|" + times(group + ":", "{1,4}") +
          times(":" + group, "{1,3}") + "|" + times(group + ":", "{1,3}") +
          times(":" + group, "{1,4}") + "|" + times(group + ":", "{1,2}") +
          times(":" + group, "{1,5}") + "|" + group + ":" + times(":" + group, "{1,6}") +
          "|:" + times(":" + group, "{1,7}") + "|::|" + "::(?:[fF]{4}:)?" + ipv4 + "|" +
          times(group + ":", "{1,4}") + ":" + ipv4;
  const std::string label = "[a-z0-9](?:[a-z0-9-]{0,33}[a-z0-9])?";
  const std::string atom = "[A-Za-z0-9_!#$%&'*+/=?^`{|}~-]{1,20}";
  const std::string pointer = "(?:/(?:[^~/]|~[01])*)*";
  return {
      {"date", date},
      {"time", time},
      {"date-time", date + "T" + time},
      {"ipv4", ipv4},
      {"ipv6", ipv6},
      {"hostname", label + times("\\." + label, "{0,6}")},
      {"email", atom + times("\\." + atom, "{0,2}") + "@" + label + times("\\." + label, "{1,4}")},
      {"json-pointer", pointer},
      {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|" + pointer + ")"}};
}

}  // namespace

std::string format_pattern(const std::string& format) {
  static const std::vector<std::pair<std::string, std::string>> patterns = format_patterns();
  for (const auto& [name, pattern] : patterns)
    if (name == format) return pattern;
  return {};
}

std::string quote(const Json& value) {
  const std::string text = dump_json(value);
  return text.size() > kQuoted ? text.substr(0, kQuoted) + ".." : text;
}

std::string within(const std::string& place, std::string name) {
  for (size_t at = 0; (at = name.find_first_of("~/", at)) != std::string::npos; at += 2)
    name.replace(at, 1, name[at] == '~' ? "~0" : "~1");
  return place + "/" + name;
}
std::string within(const std::string& place, size_t index) {
  return place + "/" + std::to_string(index);
}

bool is_of(const Json& value, const std::string& type) {
  if (type == "integer")
    return value.is_number_integer() ||
           (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
  return type == "null"      ? value.is_null()
         : type == "boolean" ? value.is_boolean()
         : type == "object"  ? value.is_object()
         : type == "array"   ? value.is_array()
         : type == "number"  ? value.is_number()
                             : type == "string" && value.is_string();
}
bool includes(const std::vector<std::string>& types, const std::string& type) {
  return std::any_of(types.begin(), types.end(), [&](const std::string& t) {
    return t == type || (t == "number" && type == "integer");
  });
}

const Json* find(const Json& schema, const char* key) {
  const auto found = schema.find(key);
  return found == schema.end() ? nullptr : &*found;
}
size_t size_of(const Json& schema, const char* key) {
  const Json* value = find(schema, key);
  return value ? value->size() : 0;
}

bool all_of(const Json& schema, const std::vector<std::string>& types) {
  if (!schema.is_object()) return false;
  const auto fits = [&](const Json& value) {
    return std::any_of(types.begin(), types.end(), [&](auto& type) { return is_of(value, type); });
  };
  const auto every = [](const Json& list, const auto& holds) {
    return list.is_array() && std::all_of(list.begin(), list.end(), holds);
  };
  if (schema.contains("$ref")) return false;
  if (const Json* value = find(schema, "const")) return fits(*value);
  if (const Json* list = find(schema, "enum")) return every(*list, fits);
  for (const char* key : {"anyOf", "oneOf", "allOf"})
    if (const Json* list = find(schema, key))
      return every(*list, [&](const Json& one) { return all_of(one, types); });
  const auto included = [&](const Json& t) { return t.is_string() && includes(types, t); };
  const Json* type = find(schema, "type");
  return type && (included(*type) || every(*type, included));
}

bool is_annotation(const std::string& name) {
  return std::count(kAnnotations.begin(), kAnnotations.end(), name) > 0;
}
bool names_annotation(const Json& value) {
  if (!value.is_structured()) return false;
  for (const auto& [name, member] : value.items())
    if ((value.is_object() && is_annotation(name)) || names_annotation(member)) return true;
  return false;
}

}  // namespace temper::grammar
