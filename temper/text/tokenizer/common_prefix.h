#pragma once

#include <algorithm>
#include <string_view>

namespace temper {

// Bytes that both texts begin with.
inline size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t size = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<long>(size), b.begin()).first - a.begin());
}

}  // namespace temper
