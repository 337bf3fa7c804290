#include "temper/dist/mesh.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/dist/environment.h"
#include "temper/dist/gloo.h"
#include "temper/dist/rendezvous.h"

namespace temper::dist {

Mesh::Mesh(std::shared_ptr<Group> group)
    : world(group), rows(group), data(group), fsdp(alone()), tensor(alone()), model(alone()) {}

Mesh::Mesh(Group& rows_alone) : Mesh(std::shared_ptr<Group>(&rows_alone, [](Group*) {})) {}

Mesh join(const MeshSection& section, const std::string& where, const std::function<bool()>& stop) {
  const Environment environment = read_environment();
  const int data = static_cast<int>(section.data_ranks(environment.size, where));
  if (environment.size == 1) return Mesh();
  const int fsdp = static_cast<int>(section.fsdp), tensor = static_cast<int>(section.tensor);
  const Patience patience(environment.timeout, stop);
  const GlooWorld gloo(
      environment, patience,
      std::chrono::milliseconds(static_cast<int64_t>(section.timeout_minutes * 60 * 1000)));
  const int d = environment.rank / (fsdp * tensor), f = environment.rank / tensor % fsdp,
            t = environment.rank % tensor;
  // The ranks from `first` on, `step` apart.
  const auto ranks_from = [](int first, int step, int count) {
    std::vector<int> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
    return ranks;
  };
  const auto group = [&](const char* axis, int first, int step, int count, bool in_step = false) {
    if (count == 1) return alone();
    return gloo.group(temper::str(axis, "/", first), ranks_from(first, step, count), in_step);
  };
  Mesh mesh;
  const bool in_step = fsdp > 1, whole = tensor == 1;
  mesh.world = group("world", 0, 1, environment.size, whole && in_step);
  mesh.tensor = group("tensor", (d * fsdp + f) * tensor, 1, tensor);
  mesh.rows = whole ? mesh.world
                    : gloo.group(temper::str("rows/", t), ranks_from(t, tensor, data * fsdp),
                                 in_step, mesh.tensor);
  mesh.data = fsdp == 1 ? mesh.rows : group("data", f * tensor + t, fsdp * tensor, data);
  mesh.fsdp = fsdp == 1   ? alone()
              : data == 1 ? mesh.rows
                          : group("fsdp", d * fsdp * tensor + t, tensor, fsdp);
  mesh.model = data == 1 ? mesh.world : group("model", d * fsdp * tensor, 1, fsdp * tensor);
  return mesh;
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

void check_agreement(Group& world, const std::vector<std::pair<std::string, std::string>>& what) {
  if (world.size() == 1) return;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  Json mine = {{"host", host}, {"says", what}};
  const std::vector<std::string> all = world.all_gather(dump_json(mine));
  const Json first = parse_json(all[0], "rank 0");
  for (size_t r = 1; r < all.size(); ++r) {
    const Json other = parse_json(all[r], "another rank");
    for (size_t i = 0; i < what.size(); ++i) {
      const auto theirs = other["says"][i][1].get<std::string>(),
                 wanted = first["says"][i][1].get<std::string>();
      if (theirs == wanted) continue;
      const auto [found, expected] = first_difference(theirs, wanted);
      throw RunError(temper::str(
          "rank ", r, " on ", other["host"].get<std::string>(), " has a different ", what[i].first,
          " than rank 0 on ", first["host"].get<std::string>(), ": `", found, "`, not `", expected,
          "`; start all ranks with the same program, files and arguments"));
    }
  }
}

}  // namespace temper::dist
