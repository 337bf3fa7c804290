// The order of tokens by their logits: the highest first, of equals the lowest id.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace temper {

struct Likelier {
  const float* logits;
  bool operator()(int32_t a, int32_t b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

// The ids of the k highest of `count` logits, in order; of all where there are fewer.
inline std::vector<int32_t> likeliest_ids(const float* logits, int64_t count, int64_t k) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  const auto middle = ids.begin() + std::min(k, count);
  std::partial_sort(ids.begin(), middle, ids.end(), Likelier{logits});
  ids.erase(middle, ids.end());
  return ids;
}

}  // namespace temper
