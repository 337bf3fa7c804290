#include "temper/base/json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper {
namespace {
constexpr int kMaxDepth = 512;

// The DOM builder recurses nowhere, but destructors and visitors of a deep value do.
int nesting_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// nlohmann's message without its "[json.exception...]" prefix.
std::string cause(const std::exception& e) {
  const std::string what = e.what();
  const size_t end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}
}  // namespace

Json parse_json(std::string_view text, std::string_view where) {
  check<DataError>(nesting_depth(text) <= kMaxDepth, where, ": JSON nested deeper than ", kMaxDepth,
                   " levels");
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& e) {
    throw DataError(str(where, ": not valid JSON: ", cause(e)));
  }
}

Json read_json_file(const std::string& path, size_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path);
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string float_to_json(float value) {
  if (!std::isfinite(value)) return "null";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

}  // namespace temper
