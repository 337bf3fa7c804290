#include "temper/grammar/schema_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/grammar/json_pattern.h"
#include "temper/grammar/schema_values.h"
#include "temper/text/unicode.h"

namespace temper::grammar {
namespace {

class Checker {
 public:
  Checker(const Json& root, std::string where, SchemaTotals& totals)
      : root_(root), where_(std::move(where)), totals_(totals) {}

  void visit(const Json& schema, const std::string& place, int64_t depth);
  // Schemas that XGrammar might take for others.
  const std::vector<std::string>& confusable() const { return confusable_; }
  // Strings whose pattern or format is replaced by this pattern for XGrammar.
  struct Rewritten {
    std::string place, pattern;
  };
  const std::vector<Rewritten>& patterns() const { return patterns_; }
  // `patternProperties` whose only name is replaced by this pattern for XGrammar.
  const std::vector<Rewritten>& names() const { return names_; }

 private:
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    throw ConfigError(printable(str(where_, ": ", parts...)));  // a NUL would end the message
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    wrong("not supported: ", parts...);
  }
  void limit(int64_t found, int64_t most, const char* what, const std::string& place) const {
    constexpr size_t kShown = 100;  // of a place, whose names are the client's
    if (found > most)
      wrong("too large: more than ", most, " ", what, " (at ", place.substr(0, kShown),
            place.size() > kShown ? "..)" : ")");
  }

  void check_beside(const Json& schema, const std::string& whole, const std::string& place) const;
  void visit_whole(const Json& schema, const std::string& whole, const std::string& place,
                   int64_t depth);
  void visit_ref(const Json& ref, const std::string& place, int64_t depth);
  std::vector<std::string> types_of(const Json& schema, const std::string& place) const;
  void check_counts(const Json& schema, const std::string& place);
  void visit_object(const Json& schema, const std::string& place, int64_t depth);
  void check_required(const Json& schema, const std::string& place) const;
  void check_open_names(const Json& schema, const std::string& place) const;
  void check_property_names(const Json& names, const std::string& place) const;
  void visit_array(const Json& schema, const std::string& place, int64_t depth);
  void check_string(const Json& schema, const std::string& place);
  void visit_name_pattern(const std::string& name, const std::string& place);
  void add_literal(size_t bytes, const std::string& place) {
    limit(totals_.literal_bytes += static_cast<int64_t>(bytes), SchemaLimits::kLiteralBytes,
          "bytes of `const`, `enum` and names of properties in total", place);
  }
  void add_pattern(const std::string& pattern, const std::string& place) {
    limit(totals_.pattern_bytes += std::ssize(pattern), SchemaLimits::kPatternBytes,
          "bytes of patterns", place);
    limit(totals_.repeats += num_large_repeats(pattern), kMostRepeats,
          "repetitions with a bound of 32 or more, as in {32}, in patterns", place);
  }
  std::string in_json(const std::string& pattern, const std::string& place) const {
    return json_pattern(pattern, printable(where_ + ": at " + place));
  }

  const Json& root_;
  const std::string where_;
  std::set<const Json*> visited_;
  std::vector<std::string> confusable_;
  std::vector<Rewritten> patterns_, names_;
  SchemaTotals& totals_;
};

void Checker::visit(const Json& schema, const std::string& place, int64_t depth) {
  if (schema.is_boolean() || !visited_.insert(&schema).second) return;
  if (!schema.is_object()) wrong("found ", quote(schema), " at ", place, ", expected a schema");
  limit(depth, SchemaLimits::kDepth, "schemas within each other", place.substr(0, 60) + "..");
  limit(++totals_.schemas, SchemaLimits::kSchemas, "schemas", place);
  for (const char* key : kUnheldKeywords)
    if (const Json* value = find(schema, key); value && *value != false)
      refuse("the keyword `", key, "` at ", place);
  for (const char* key : kWholeKeywords)
    if (schema.contains(key)) return visit_whole(schema, key, place, depth);
  const std::vector<std::string> types = types_of(schema, place);
  check_counts(schema, place);
  if (includes(types, "object")) visit_object(schema, place, depth);
  if (includes(types, "array")) visit_array(schema, place, depth);
  if (includes(types, "string")) check_string(schema, place);
}

// Checks the keywords beside one that XGrammar reads alone.
void Checker::check_beside(const Json& schema, const std::string& whole,
                           const std::string& place) const {
  const bool values = whole == "const" || whole == "enum";
  const auto beside = [&](const char* key) {
    if (whole != key && schema.contains(key))
      refuse("the keyword `", key, "` beside `", whole, "` at ", place,
             values ? "; leave out the values that it forbids"
                    : "; write it inside of `" + whole + "`");
  };
  for (const char* key : kWholeKeywords) beside(key);
  for (const TypedKeyword& keyword : kTypedKeywords) beside(keyword.name);
  if (schema.contains("type") && !all_of({{whole, schema[whole]}}, types_of(schema, place)))
    refuse("the keyword `type` beside `", whole, "` at ", place, ", where not all of `", whole,
           "` is of the type ", quote(schema["type"]));
}

void Checker::visit_whole(const Json& schema, const std::string& whole, const std::string& place,
                          int64_t depth) {
  check_beside(schema, whole, place);
  const Json& value = schema[whole];
  const std::string here = within(place, whole);
  if (whole == "$ref") return visit_ref(value, place, depth);
  if ((whole == "const" || whole == "enum") && names_annotation(value))
    confusable_.push_back(place);
  if (whole == "const") return add_literal(dump_json(value).size(), place);
  if (!value.is_array() || value.empty())
    wrong("`", whole, "` at ", place, ": found ", quote(value), ", expected a list, not empty");
  if (whole == "enum") {
    totals_.enum_values += static_cast<int64_t>(value.size());
    limit(totals_.enum_values, SchemaLimits::kEnumValues, "values of `enum` in total", place);
    for (const Json& one : value) add_literal(dump_json(one).size(), place);
    return;
  }
  if (whole == "allOf" && value.size() > 1)
    refuse("the keyword `allOf` with ", value.size(), " schemas at ", place,
           "; write them as one schema");
  for (size_t i = 0; i < value.size(); ++i) visit(value[i], within(here, i), depth + 1);
}

// XGrammar follows names of members alone, and does not unescape them.
void Checker::visit_ref(const Json& ref, const std::string& place, int64_t depth) {
  const std::string uri = ref.is_string() ? ref.get<std::string>() : "";
  if (uri != "#" && !uri.starts_with("#/"))
    wrong("`$ref` at ", place, ": found ", quote(ref), ", expected a place in this schema, as in ",
          "\"#/$defs/NAME\"");
  const Json* target = &root_;
  std::string there = "#";
  for (size_t at = 2; at < uri.size();) {
    const size_t end = std::min(uri.find('/', at), uri.size());
    const std::string name = uri.substr(at, end - at);
    at = end + 1;
    if (name.empty()) continue;
    if (there.ends_with("/patternProperties"))
      refuse("the keyword `$ref` at ", place, " into `patternProperties`; write what it names in ",
             "`$defs`");
    if (!target->is_object() || !target->contains(name))
      wrong("`$ref` at ", place, ": there is no ", quote(ref));
    target = &(*target)[name];
    there = within(there, name);
  }
  visit(*target, there, depth + 1);
}

// The types of the schema's values; empty: any.
std::vector<std::string> Checker::types_of(const Json& schema, const std::string& place) const {
  static const std::set<std::string> known{"null",   "boolean", "object", "array",
                                           "number", "integer", "string"};
  if (const Json* type = find(schema, "type")) {
    const Json list = type->is_array() ? *type : Json::array({*type});
    const bool good = !list.empty() && std::all_of(list.begin(), list.end(), [&](const Json& t) {
      return t.is_string() && known.contains(t.get<std::string>());
    });
    if (!good)
      wrong("`type` at ", place, ": found ", quote(*type), ", expected null, boolean, object, ",
            "array, number, integer or string, or a list of these");
    return list.get<std::vector<std::string>>();
  }
  for (const char* key : {"properties", "additionalProperties", "unevaluatedProperties"})
    if (schema.contains(key)) return {"object"};
  for (const char* key : {"items", "prefixItems", "unevaluatedItems"})
    if (schema.contains(key)) return {"array"};
  for (const TypedKeyword& keyword : kTypedKeywords)
    if (schema.contains(keyword.name))
      refuse("the keyword `", keyword.name, "` without `type` at ", place, R"(; add "type": ")",
             keyword.type, "\"");
  return {};
}

void Checker::check_counts(const Json& schema, const std::string& place) {
  for (const char* key :
       {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}) {
    const Json* count = find(schema, key);
    if (!count) continue;
    if (!count->is_number_integer() || *count < 0)
      wrong("`", key, "` at ", place, ": found ", quote(*count), ", expected a whole number of at ",
            "least 0");
    if (*count > SchemaLimits::kCount)
      wrong("too large: `", key, "` at ", place, " is ", quote(*count), ", expected at most ",
            SchemaLimits::kCount);
    if (*count > SchemaLimits::kSmallCount)
      limit(++totals_.large_counts, SchemaLimits::kLargeCounts,
            "values of minLength, maxItems and the like above 1024", place);
  }
}

void Checker::visit_object(const Json& schema, const std::string& place, int64_t depth) {
  check_required(schema, place);
  check_open_names(schema, place);
  // XGrammar writes an object anew for each number of properties that it may have so far.
  const size_t most_copies = std::max(schema.value("minProperties", size_t{0}),
                                      schema.value("maxProperties", size_t{0})),
               copies = std::clamp<size_t>(most_copies, 1,
                                           std::max<size_t>(size_of(schema, "properties"), 1));
  for (const char* key : {"properties", "patternProperties"}) {
    const Json* map = find(schema, key);
    if (!map) continue;
    const std::string here = within(place, key);
    if (!map->is_object())
      wrong("`", key, "` at ", place, ": found ", quote(*map), ", expected an object of schemas");
    totals_.properties += static_cast<int64_t>(map->size());
    limit(totals_.properties, SchemaLimits::kProperties, "properties in total", place);
    bool confusable = false;
    for (const auto& [name, value] : map->items()) {
      if (key == std::string_view("properties")) add_literal(name.size() * copies, place);
      visit(value, within(here, name), depth + 1);
      if (key == std::string_view("patternProperties")) visit_name_pattern(name, here);
      confusable = confusable || is_annotation(name);
    }
    if (confusable) confusable_.push_back(place);
  }
  for (const char* key : {"additionalProperties", "unevaluatedProperties", "propertyNames"})
    if (const Json* rest = find(schema, key)) visit(*rest, within(place, key), depth + 1);
}

// A name that `properties` lacks may come or not: XGrammar demands none of those.
void Checker::check_required(const Json& schema, const std::string& place) const {
  std::unordered_set<std::string> optional, known;
  if (const Json* properties = find(schema, "properties"); properties && properties->is_object())
    for (const auto& [name, value] : properties->items()) known.insert(name);
  optional = known;
  const Json required = schema.value("required", Json::array());
  if (!required.is_array())
    wrong("`required` at ", place, ": found ", quote(required), ", expected a list of names");
  for (const Json& name : required) {
    if (!name.is_string())
      wrong("`required` at ", place, ": found ", quote(name), ", expected the name of a property");
    if (!known.contains(name.get<std::string>()))
      refuse("the keyword `required` at ", place, " names ", quote(name),
             ", which `properties` does not list; add it there");
    optional.erase(name.get<std::string>());
  }
  limit(std::ssize(optional), SchemaLimits::kOptional, "optional properties of one object", place);
}

// Names that `properties` does not list. One may come twice in an object, which then has fewer.
void Checker::check_open_names(const Json& schema, const std::string& place) const {
  const auto has = [&](const char* key) {
    const Json* value = find(schema, key);
    return value && !(value->is_object() && value->empty());
  };
  const auto refuse_both = [&](const char* one, const char* other) {
    if (has(one) && has(other)) refuse("the keyword `", one, "` beside `", other, "` at ", place);
  };
  refuse_both("patternProperties", "properties");
  refuse_both("propertyNames", "properties");
  refuse_both("propertyNames", "patternProperties");
  const Json* patterns = find(schema, "patternProperties");
  if (patterns && patterns->size() > 1)
    refuse("the keyword `patternProperties` with ", patterns->size(), " patterns at ", place);
  const char* rest_key =
      schema.contains("additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
  const Json rest = schema.value(rest_key, Json(false));
  if (const Json* names = find(schema, "propertyNames")) {
    if (schema.contains(rest_key) && rest == false) refuse_both("propertyNames", rest_key);
    check_property_names(*names, place);
  }
  const size_t least = schema.value("minProperties", size_t{0});
  const bool open = rest != false || has("patternProperties") || has("propertyNames");
  if (open && least > std::max<size_t>(size_of(schema, "required"), 1))
    refuse("the keyword `minProperties` above 1 at ", place,
           " where names are not all listed; a name could come twice");
  if (schema.contains("minProperties") || schema.contains("maxProperties"))
    limit(static_cast<int64_t>(size_of(schema, "properties")), SchemaLimits::kCounted,
          "properties beside minProperties or maxProperties", place);
}

// XGrammar writes names as it would values, of which only strings are names.
void Checker::check_property_names(const Json& names, const std::string& place) const {
  if (!names.is_object() || !all_of(names, {"string"}) || names.contains("anyOf") ||
      names.contains("oneOf") || names.contains("allOf"))
    refuse("the keyword `propertyNames` at ", place, " with ", quote(names),
           R"(; expected a schema of "type": "string" or an `enum` of strings)");
}

void Checker::visit_array(const Json& schema, const std::string& place, int64_t depth) {
  for (const char* key : {"items", "unevaluatedItems"})
    if (const Json* items = find(schema, key)) visit(*items, within(place, key), depth + 1);
  if (const Json* list = find(schema, "prefixItems")) {
    if (!list->is_array())
      wrong("`prefixItems` at ", place, ": found ", quote(*list), ", expected a list of schemas");
    for (size_t i = 0; i < list->size(); ++i)
      visit((*list)[i], within(within(place, "prefixItems"), i), depth + 1);
  }
}

void Checker::visit_name_pattern(const std::string& name, const std::string& place) {
  add_pattern(name, place);
  names_.push_back({place, in_json(name, place)});
}

void Checker::check_string(const Json& schema, const std::string& place) {
  const Json *format = find(schema, "format"), *pattern = find(schema, "pattern");
  for (const Json* text : {format, pattern})
    if (text && !text->is_string())
      wrong("`", text == format ? "format" : "pattern", "` at ", place, ": found ", quote(*text),
            ", expected a string");
  if (format && std::count(kFormats.begin(), kFormats.end(), format->get<std::string>()) == 0)
    refuse("the keyword `format` at ", place, " with ", quote(*format), "; write a `pattern`");
  if (format && pattern) refuse("the keyword `pattern` beside `format` at ", place);
  for (const char* key : {"minLength", "maxLength"})
    if (schema.contains(key) && (format || pattern))
      refuse("the keyword `", key, "` beside `", format ? "format" : "pattern", "` at ", place);
  const std::string own = format ? format_pattern(format->get<std::string>()) : "";
  if (!pattern && own.empty()) return;
  const std::string written = pattern ? pattern->get<std::string>() : own;
  if (pattern) add_pattern(written, place);
  patterns_.push_back({place, in_json(written, place)});
}

// The schema in the form that XGrammar reads.
Json adapted(const Json& schema, const Checker& checker) {
  Json out = schema;
  const auto at = [&](const std::string& place) -> Json& {
    return out[Json::json_pointer(place.substr(1))];
  };
  int64_t number = 0;
  for (const std::string& place : checker.confusable()) at(place)["$temper"] = ++number;
  for (const Checker::Rewritten& one : checker.patterns()) {
    at(one.place).erase("format");
    at(one.place)["pattern"] = one.pattern;
  }
  // Innermost first, as `place` contains names that this replaces.
  std::vector<Checker::Rewritten> names = checker.names();
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return a.place.size() > b.place.size(); });
  for (const Checker::Rewritten& one : names) {
    Json renamed = Json::object();
    renamed[one.pattern] = at(one.place).begin().value();
    at(one.place) = std::move(renamed);
  }
  return out;
}

}  // namespace

std::string checked_schema(const Json& schema, const std::string& text, const std::string& where,
                           SchemaTotals* totals) {
  check<ConfigError>(schema.is_object() || schema.is_boolean(), where,
                     ": expected a JSON schema, an object");
  SchemaTotals own;
  Checker checker(schema, where, totals ? *totals : own);
  checker.visit(schema, "#", 0);
  if (checker.confusable().empty() && checker.patterns().empty() && checker.names().empty())
    return text;
  return dump_json(adapted(schema, checker));
}

}  // namespace temper::grammar
