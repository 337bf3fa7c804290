// The combinations of settings of a sweep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace temper::cli {

struct Combination {
  std::string name;                   // of its directory: "learning_rate=1e-4,rank=8"
  std::vector<std::string> settings;  // "optimizer.learning_rate=1e-4"
  std::string base = {};              // shared_base()
  int64_t pass_tokens = 0;            // most tokens of a pass
  // Planned memory in bytes: alone, and what is its own beside a base that others share; 0: there
  // is no plan.
  int64_t peak_bytes = 0, own_bytes = 0;
  bool is_worst = false, failed = false;
};

// Of `KEY=A,B,..` each: the first key changes slowest. Commas within brackets, braces and quotes
// part no values. None: one combination without settings, "run". Throws ConfigError.
std::vector<Combination> combinations_of(const std::vector<std::string>& over);

}  // namespace temper::cli
