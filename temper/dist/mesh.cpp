#include "temper/dist/mesh.h"

#include <numeric>
#include <utility>
#include <vector>

#include "temper/dist/environment.h"
#include "temper/dist/world.h"

namespace temper::dist {

Mesh::Mesh(std::shared_ptr<Group> group)
    : world(group),
      data_parallel(group),
      tokens(group),
      data(group),
      fsdp(alone()),
      context(alone()),
      tensor(alone()),
      same_rows(alone()),
      model(alone()) {}

Mesh Mesh::tensor_parallel(std::shared_ptr<Group> group) {
  Mesh mesh;
  mesh.world = mesh.tensor = mesh.same_rows = mesh.model = std::move(group);
  return mesh;
}

Mesh::Mesh(Group& data_parallel) : Mesh(std::shared_ptr<Group>(&data_parallel, [](Group*) {})) {}

Mesh join(const MeshSection& section, const std::string& where, const std::function<bool()>& stop) {
  section.sizes(read_environment().size, where);  // before anybody waits
  World world(section, stop);
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.mesh(section, all, where);
}

std::shared_ptr<Group> Group::from_environment(const std::function<bool()>& stop) {
  return join({}, "mesh", stop).world;
}

}  // namespace temper::dist
