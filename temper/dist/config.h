// The `mesh` section of a run's config.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "temper/base/config/config.h"

namespace temper::dist {

// How many ranks each axis has. Ranks are numbered data first, tensor or expert last, so that the
// ranks of such a group are neighbours, and where a host has several they share it.
struct MeshSection {
  // groups of ranks with rows of their own and the same weights; -1: what is left
  int64_t data = -1;
  int64_t fsdp = 1;    // ranks with rows of their own that share out the weights among them
  int64_t tensor = 1;  // ranks that compute the same rows, each with its part of every layer
  int64_t expert = 1;  // ranks that compute the same rows, each with some of the experts
  double timeout_minutes = 60;
  // longest time without a heartbeat of a rank: its process or its host is then lost or frozen
  double heartbeat_timeout_seconds = 45;
  int64_t check_weights_every = 0;  // steps between comparisons of ranks' weights; 0: at the start
  void fields(Fields& f);

  // The size of the data axis among so many ranks that train. `where` begins the message of the
  // ConfigError where the axes do not multiply to them, or both tensor and expert are above 1. all:
  // ranks of the run, those with roles of their own included; 0: there are no others.
  int64_t data_ranks(int64_t ranks, const std::string& where, int64_t all = 0) const;
};

}  // namespace temper::dist
