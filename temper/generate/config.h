// The config section `rollout`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config.h"
#include "temper/generate/request.h"

namespace temper::generate {

struct RolloutSection {
  int64_t max_new_tokens = 256;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::optional<int64_t> cache_bytes;
  void fields(Fields& f);
  // What the section says of a request.
  GenerationOptions options(int64_t seed) const;
};

}  // namespace temper::generate
