#include "temper/dist/agreement.h"

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
  for (size_t i = 0; i < a["says"].size(); ++i) {
    const auto theirs = b["says"][i][1].get<std::string>(),
               wanted = a["says"][i][1].get<std::string>();
    if (theirs == wanted) continue;
    const auto [found, expected] = first_difference(theirs, wanted);
    throw RunError(temper::str("rank ", rank, " on ", b["host"].get<std::string>(),
                               " has a different ", a["says"][i][0].get<std::string>(),
                               " than rank 0 on ", a["host"].get<std::string>(), ": `", found,
                               "`, not `", expected,
                               "`; start all ranks with the same program, files and arguments"));
  }
}

}  // namespace temper::dist
