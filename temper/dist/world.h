// The ranks of a run before they are a mesh: they have found each other, and those that will be no
// part of it are among them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/dist/roles.h"

namespace temper::dist {

class GlooWorld;
class Patience;

class World {
 public:
  // All ranks that the environment names; they wait for each other. timeout_minutes: as
  // MeshSection's. Throws as join().
  explicit World(double timeout_minutes, const std::function<bool()>& stop = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Where this rank listens, so that all others reach it.
  std::string address() const;

  // The mesh of these ranks, ascending; this one is among them, and all of them call it.
  Mesh mesh(const MeshSection& section, const std::vector<int>& ranks, const std::string& where);

  // The ranks that hold the model of this one's roles together; all of them call it.
  Mesh role_mesh(const RolesSection& roles);

  // A text for any rank that asks for its name, once.
  void tell(const std::string& name, const std::string& text);
  // What a rank told under the name; waits for it. Throws RunError that begins with `missing` where
  // it does not come in time.
  std::string ask(const std::string& name, const std::string& missing) const;

 private:
  std::shared_ptr<PeerWatch> watch(Group& group, const std::vector<int>& ranks) const;

  int rank_ = 0, size_ = 1;
  std::unique_ptr<Patience> patience_;
  std::unique_ptr<GlooWorld> gloo_;  // null: one rank
};

// What a rank says of itself, as text, and whether another's is the same: throws RunError that
// names the first difference and both hosts. Of check_agreement, for ranks outside of the mesh.
std::string say(const std::vector<std::pair<std::string, std::string>>& what);
void check_same(const std::string& first, int rank, const std::string& other);
// This machine's name.
std::string host_name();

}  // namespace temper::dist
