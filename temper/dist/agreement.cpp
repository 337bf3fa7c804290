#include "temper/dist/agreement.h"

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/dist/environment.h"

namespace temper::dist {
namespace {

// Where two texts first differ: their lines there.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string x, y;
  while (true) {
    const bool more_x = static_cast<bool>(std::getline(left, x)),
               more_y = static_cast<bool>(std::getline(right, y));
    if (!more_x) x = "nothing";
    if (!more_y) y = "nothing";
    if (x != y || (!more_x && !more_y)) return {x, y};
  }
}

}  // namespace

std::string say(const std::vector<std::pair<std::string, std::string>>& what) {
  return dump_json({{"host", host_name()}, {"says", what}});
}

void check_same(const std::string& first, int rank, const std::string& other) {
  const Json a = parse_json(first, "rank 0"), b = parse_json(other, "another rank");
  std::map<std::string, std::string> expected_of;
  for (const Json& one : a["says"])
    expected_of[one[0].get<std::string>()] = one[1].get<std::string>();
  for (const Json& one : b["says"]) {
    const auto wanted = expected_of.find(one[0].get<std::string>());
    const auto theirs = one[1].get<std::string>();
    if (wanted == expected_of.end() || theirs == wanted->second) continue;
    const auto [found, expected] = first_difference(theirs, wanted->second);
    throw RunError(temper::str("rank ", rank, " on ", b["host"].get<std::string>(),
                               " has a different ", wanted->first, " than rank 0 on ",
                               a["host"].get<std::string>(), ": `", found, "`, not `", expected,
                               "`; start all ranks with the same program, files and arguments"));
  }
}

}  // namespace temper::dist
