// The combinations of settings of a sweep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/base/config/yaml.h"

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

// Throws ConfigError for a setting among `words`, which are the names of files and settings, of a
// key that `over` varies, or of a part of it: it would be ignored.
void check_not_fixed(const std::vector<std::string>& words, const std::vector<std::string>& over);

// Those of a combination's settings that its rows may depend on: all but the optimizer's.
std::string row_settings(const Combination& one);

// A text of all settings of a resolved config but its output_dir: the same for configs that differ
// only in how numbers and the paths of files are written.
std::string settings_text(const YamlNode& config);

// Of `KEY=A,B,..` each: the first key changes slowest. Commas within brackets, braces and quotes
// part no values. None: one combination without settings, "run". Throws ConfigError.
std::vector<Combination> combinations_of(const std::vector<std::string>& over);

}  // namespace temper::cli
