// The members of a request's JSON body, read by name.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/base/json.h"

namespace temper::serve {

constexpr int64_t kUnbounded = INT64_MAX;

// What an error quotes of a value.
std::string quoted(const Json& value);
// Throws DataError: the key, what was found and what was expected.
[[noreturn]] void wrong(std::string_view key, const Json& found, const std::string& expected);

// The members of a body, or of an object in it; each that is asked for is known.
class Members {
 public:
  explicit Members(const Json& body) : body_(body) {}

  // Null where it is absent or null.
  const Json* find(std::string_view key);
  bool flag(std::string_view key);
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high);
  void number(std::string_view key, double& out, const Rule& rule);  // absent: `out` stays
  std::string text(std::string_view key);
  // The keys that no function above asked for and that have an effect on other servers. Throws
  // DataError for a key that is only supported with one value and has another, and for one that
  // looks like a misspelled key.
  std::vector<std::string> rest();
  // Throws DataError where a key was not asked for.
  void check_no_rest();

 private:
  const Json& body_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace temper::serve
