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
Json* own_source(Json& part) {
  for (const char* field : {"image", "image_url"}) {
    if (!is_there(part, field)) continue;
    Json& source = part[field];
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

ImageSource image_source(const Json& source) {
  if (source.is_string()) return {source.get<std::string>(), {}};
  const bool known = source.is_object() && (is_there(source, "bytes") || is_there(source, "path"));
  check<DataError>(known, "expected a path, a data: URI or {\"bytes\", \"path\"}, found ",
                   dump_json(source).substr(0, 80));
  const char* const field = is_there(source, "bytes") ? "bytes" : "path";
  check<DataError>(source[field].is_string(), "`", field, "` must be text, found ",
                   dump_json(source[field]).substr(0, 80));
  std::string text = source[field].get<std::string>();
  const bool base64 = field == std::string_view("bytes") && !is_data_uri(text);
  return {base64 ? "data:application/octet-stream;base64," + text : std::move(text), {}};
}

}  // namespace temper::data
