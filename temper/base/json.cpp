#include "temper/base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper {
namespace {
constexpr int kMaxJsonDepth = 512;

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

using Members = std::vector<std::pair<std::string, Json>>;

// Members with the same key become one, with the place of the first and the value of the last.
void merge_duplicates(Members& members) {
  std::vector<uint32_t> order(members.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return members[a].first < members[b].first; });
  std::vector<bool> gone(members.size());
  for (size_t i = 0, first = 0; i < order.size(); ++i) {
    if (members[order[i]].first != members[order[first]].first) first = i;
    if (i == first) continue;
    members[order[first]].second = std::move(members[order[i]].second);
    gone[order[i]] = true;
  }
  size_t kept = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (gone[i]) continue;
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.resize(kept);
}

Json to_object(Members members) {
  merge_duplicates(members);
  Json object = Json::object();
  auto& out = object.get_ref<Json::object_t&>();
  out.reserve(members.size());  // a growing vector of const keys would copy what it holds
  for (auto& [key, value] : members) out.emplace_back(std::move(key), std::move(value));
  return object;
}

// Builds a value from nlohmann's parser in O(n log n). Its own builder looks for each new key among
// all the keys before it, which takes minutes for an object of a million members.
class Builder {
 public:
  explicit Builder(BigIntegers big) : big_(big) {}

  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(number_integer_t value) { return put(value); }
  bool number_unsigned(number_unsigned_t value) { return put(value); }
  bool number_float(number_float_t value, const string_t& text) {
    const bool integer = text.find_first_not_of("-0123456789") == std::string::npos;
    if (!integer || big_ == BigIntegers::kDoubles) return put(value);
    return put(Json::binary({text.begin(), text.end()}));
  }
  bool string(string_t& value) { return put(std::move(value)); }
  bool binary(binary_t&) { return false; }  // never in JSON text
  bool start_object(size_t) { return open(true); }
  bool start_array(size_t) { return open(false); }
  bool key(string_t& name) {
    open_.back().members.emplace_back(std::move(name), nullptr);
    return true;
  }
  bool end_object() {
    Json object = to_object(std::move(open_.back().members));
    open_.pop_back();
    return put(std::move(object));
  }
  bool end_array() {
    Json array = std::move(open_.back().items);
    open_.pop_back();
    return put(std::move(array));
  }
  bool parse_error(size_t, const std::string&, const Json::exception& e) {
    problem_ = cause(e);
    return false;
  }

  Json& value() { return value_; }
  const std::string& problem() const { return problem_; }

 private:
  struct Open {
    bool is_object = false;
    Members members;
    Json::array_t items;
  };

  bool open(bool is_object) {
    open_.push_back({.is_object = is_object, .members = {}, .items = {}});
    return true;
  }
  template <class T>
  bool put(T&& value) {
    if (open_.empty())
      value_ = std::forward<T>(value);
    else if (open_.back().is_object)
      open_.back().members.back().second = std::forward<T>(value);
    else
      open_.back().items.emplace_back(std::forward<T>(value));
    return true;
  }

  BigIntegers big_;
  std::vector<Open> open_;  // objects and arrays that have not ended, outermost first
  Json value_;
  std::string problem_ = "no value";
};

bool has_big_integer(const Json& value) {
  return value.is_binary() ||
         (value.is_structured() && std::any_of(value.begin(), value.end(), has_big_integer));
}
}  // namespace

Json parse_json(std::string_view text, std::string_view where, BigIntegers big) {
  check<DataError>(nesting_depth(text) <= kMaxJsonDepth, where, ": JSON nested deeper than ",
                   kMaxJsonDepth, " levels");
  Builder builder(big);
  const bool valid = Json::sax_parse(text.begin(), text.end(), &builder);
  check<DataError>(valid, where, ": not valid JSON: ", builder.problem());
  return std::move(builder.value());
}

Json read_json_file(const std::string& path, size_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path);
}

std::string dump_json(const Json& value) {
  if (!has_big_integer(value)) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (value.is_binary()) return {value.get_binary().begin(), value.get_binary().end()};
  std::string out;
  for (const auto& [key, item] : value.items()) {
    out += out.empty() ? "" : ",";
    out += (value.is_object() ? dump_json(Json(key)) + ":" : "") + dump_json(item);
  }
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

const Json* find_field(const Json& row, std::string_view name) {
  if (!row.is_object()) return nullptr;
  if (const auto found = row.find(std::string(name)); found != row.end()) return &*found;
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    const auto outer = row.find(std::string(name.substr(0, dot)));
    if (outer == row.end()) continue;
    if (const Json* inner = find_field(*outer, name.substr(dot + 1))) return inner;
  }
  return nullptr;
}

std::string float_to_json(float value) {
  if (!std::isfinite(value)) return "null";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

}  // namespace temper
