// Groups of ranks over c10d's Gloo.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/dist/environment.h"
#include "temper/dist/group.h"
#include "temper/dist/rendezvous.h"

namespace temper::dist {

// The rendezvous of the ranks, from which groups are made.
class GlooWorld {
 public:
  // Throws RunError when the ranks do not find each other.
  GlooWorld(const Environment& environment, const Patience& patience,
            std::chrono::milliseconds longest_wait);
  ~GlooWorld();

  // A group of these ranks, in this order; this rank is one of them, and all of them call it.
  // `name` is the group's own; `twins` are the ranks that do the same as this one in groups of
  // their own. A group keeps alive what it needs of this.
  std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& ranks,
                               bool in_step = false, std::shared_ptr<Group> twins = nullptr) const;
  // Where this rank listens.
  const std::string& address() const;
  // Sets the cause that collectives which fail from here on report.
  void note_lost_peer(const std::string& text) const;
  // put() stores a text for all ranks under a name; find() gives that text, or nothing yet.
  void put(const std::string& name, const std::string& text) const;
  std::optional<std::string> find(const std::string& name) const;

 private:
  struct Connection;
  std::shared_ptr<Connection> connection_;
};

}  // namespace temper::dist
