// The config section `metrics`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/base/config/config.h"

namespace temper {

struct MetricsSection {
  std::vector<std::string> sinks = {"console", "jsonl"};
  int64_t log_every = 0;
  void fields(Fields& f);
};

}  // namespace temper
