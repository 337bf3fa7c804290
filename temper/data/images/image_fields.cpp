#include "temper/data/images/image_fields.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "temper/base/ascii.h"
#include "temper/base/error.h"

namespace temper::data {
namespace {

constexpr std::array kListFields = {"images", "image"};
constexpr std::array kConversations = {"messages",   "conversations", "prompt",
                                       "completion", "chosen",        "rejected"};
constexpr std::array kEndings = {".png", ".jpg", ".jpeg", ".webp"};

bool is_there(const Json& object, const char* field) {
  return object.contains(field) && !object[field].is_null();
}

bool looks_like_image(const Json& source) {
  if (source.is_object()) return is_there(source, "bytes") || is_there(source, "path");
  if (!source.is_string()) return false;
  const auto& text = source.get_ref<const std::string&>();
  if (is_data_uri(text)) return true;
  const std::string name = ascii_lower(text);
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](const char* ending) { return name.ends_with(ending); });
}

// The place of a part's own SOURCE.
template <class Value>  // Json, const or not
Value* own_source(Value& part) {
  for (const char* field : {"image", "image_url"}) {
    if (!is_there(part, field)) continue;
    Value& source = part[field];
    return source.is_object() && is_there(source, "url") ? &source["url"] : &source;
  }
  return nullptr;
}

}  // namespace

bool is_image(const Json& part) {
  if (!part.is_object()) return false;
  const Json type = part.value("type", Json());
  return type == "image" || type == "image_url";
}

std::optional<Json> source_of_part(const Json& part, const std::string& where) {
  for (const char* field : {"url", "path", "base64"})
    check<DataError>(!is_there(part, field), where, ": an image part has `", field,
                     R"(`; expected {"type": "image", "image": path or data: URI}, or )",
                     R"({"type": "image_url", "image_url": {"url": ..}})");
  Json copy = part;
  const Json* const own = own_source(copy);
  check<DataError>(own || part["type"] == "image", where, ": an image part has no `image_url`");
  return own ? std::optional(*own) : std::nullopt;
}

std::vector<Json> image_sources(const Json& row, const std::string& where) {
  std::vector<Json> sources;
  const char* taken = nullptr;
  for (const char* field : kListFields) {
    if (!is_there(row, field) || row[field] == Json::array()) continue;
    check<DataError>(!taken, where, ": the row has both `images` and `image`");
    taken = field;
    if (row[field].is_array())
      sources.assign(row[field].begin(), row[field].end());
    else
      sources.push_back(row[field]);
  }
  return sources;
}

bool looks_like_images(const Json& row) {
  for (const char* field : kListFields) {
    if (!is_there(row, field)) continue;
    const Json& value = row[field];
    if (value.is_array() ? std::any_of(value.begin(), value.end(), looks_like_image)
                         : looks_like_image(value))
      return true;
  }
  return false;
}

namespace {

template <class Value>
void visit_sources(Value& row, const std::map<std::string, std::string>& columns,
                   const std::function<void(Value&)>& visit) {
  const auto field = [&](const char* name) -> Value* {
    const auto renamed = columns.find(name);
    const auto found = row.find(renamed == columns.end() ? name : renamed->second);
    return found == row.end() ? nullptr : &*found;
  };
  for (const char* name : kListFields) {
    Value* const value = field(name);
    if (!value) continue;
    if (looks_like_image(*value)) visit(*value);
    if (!value->is_array()) continue;
    for (Value& source : *value)
      if (looks_like_image(source)) visit(source);
  }
  for (const char* name : kConversations) {
    Value* const messages = field(name);
    if (!messages || !messages->is_array()) continue;
    for (Value& message : *messages) {
      if (!message.is_object()) continue;
      for (const char* words : {"content", "value"}) {
        const auto parts = message.find(words);
        if (parts == message.end() || !parts->is_array()) continue;
        for (Value& part : *parts)
          if (is_image(part))
            if (Value* const source = own_source(part)) visit(*source);
      }
    }
  }
}

}  // namespace

void each_image_source(Json& row, const std::map<std::string, std::string>& columns,
                       const std::function<void(Json&)>& visit) {
  visit_sources(row, columns, visit);
}

void each_image_source(const Json& row, const std::map<std::string, std::string>& columns,
                       const std::function<void(const Json&)>& visit) {
  visit_sources(row, columns, visit);
}

ImageSource image_source(const Json& source) {
  if (source.is_string()) return {source.get<std::string>(), {}};
  const bool known = source.is_object() && (is_there(source, "bytes") || is_there(source, "path"));
  check<DataError>(known, "expected a path, a data: URI or {\"bytes\", \"path\"}, found ",
                   dump_json(source).substr(0, 80));
  const char* const field = is_there(source, "bytes") ? "bytes" : "path";
  check<DataError>(source[field].is_string(), "`", field, "` must be text, found ",
                   dump_json(source[field]).substr(0, 80));
  const auto& text = source[field].get_ref<const std::string&>();
  return {text, {}, field == std::string_view("bytes") && !is_data_uri(text)};
}

}  // namespace temper::data
