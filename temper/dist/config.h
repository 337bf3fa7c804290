// The `mesh` section of a run's config.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "temper/base/config/config.h"
#include "temper/dist/axes.h"

namespace temper::dist {

// The sizes of the axes as they are written: `data` may be -1, what is left.
struct MeshSection : AxisSizes {
  MeshSection() { data = -1; }
  double timeout_minutes = 60;
  // longest time without a heartbeat of a rank: its process or its host is then lost or frozen
  double heartbeat_timeout_seconds = 45;
  int64_t check_weights_every = 0;  // steps between comparisons of ranks' weights; 0: at the start
  void fields(Fields& f);

  // Those of so many ranks that train. `where` begins the message of the ConfigError where the axes
  // do not multiply to them, or two are above 1 of which one stands in the other's place. all:
  // ranks of the run, those with roles of their own included; 0: there are no others.
  AxisSizes sizes(int64_t ranks, const std::string& where, int64_t all = 0) const;
  // Whether these axes have one rank each.
  bool is_whole(Which which) const { return product(which) == 1; }
};

}  // namespace temper::dist
