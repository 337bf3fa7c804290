#include "temper/dist/mesh.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/dist/environment.h"
#include "temper/dist/world.h"

namespace temper::dist {

Mesh::Mesh(std::shared_ptr<Group> group)
    : world(group), rows(group), data(group), fsdp(alone()), tensor(alone()), model(alone()) {}

Mesh Mesh::tensor_parallel(std::shared_ptr<Group> group) {
  Mesh mesh;
  mesh.world = mesh.tensor = mesh.model = std::move(group);
  return mesh;
}

Mesh::Mesh(Group& rows_alone) : Mesh(std::shared_ptr<Group>(&rows_alone, [](Group*) {})) {}

Mesh join(const MeshSection& section, const std::string& where, const std::function<bool()>& stop) {
  section.data_ranks(read_environment().size, where);  // before anybody waits
  World world(section.timeout_minutes, stop);
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.mesh(section, all, where);
}

std::shared_ptr<Group> Group::from_environment(const std::function<bool()>& stop) {
  return join({}, "mesh", stop).world;
}

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

std::string host_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return host;
}

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

void check_agreement(Group& world, const std::vector<std::pair<std::string, std::string>>& what) {
  if (world.size() == 1) return;
  const std::vector<std::string> all = world.all_gather(say(what));
  for (size_t r = 1; r < all.size(); ++r) check_same(all[0], static_cast<int>(r), all[r]);
}

}  // namespace temper::dist
