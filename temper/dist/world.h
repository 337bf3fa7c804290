// The ranks of a run before they are a mesh: they have found each other, and those that will be no
// part of it are among them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/dist/roles.h"

namespace temper::dist {

class GlooWorld;
class Patience;

// Whether this process has been in a mesh with others, which then notice when one of them is gone.
// Safe in a signal handler.
bool have_met();

class World {
 public:
  // All ranks that the environment names; they wait for each other. Only the section's time limits
  // are used. Throws as join().
  explicit World(const MeshSection& section, const std::function<bool()>& stop = {});
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

  // Publishes a text under a name, once, for any rank that asks for it.
  void tell(const std::string& name, const std::string& text);
  // The text that a rank published under the name; waits for it. Throws RunError that begins with
  // `missing` where it does not come in time.
  std::string ask(const std::string& name, const std::string& missing) const;
  // Throws RunError where rank 0, or torchrun, whichever the ranks meet at, is gone.
  void check_meeting_place() const;

 private:
  std::shared_ptr<PeerWatch> watch(Group& group, const std::vector<int>& ranks) const;

  int rank_ = 0, size_ = 1;
  double heartbeat_timeout_seconds_;
  std::unique_ptr<Patience> patience_;
  std::unique_ptr<GlooWorld> gloo_;  // null: one rank
};

}  // namespace temper::dist
