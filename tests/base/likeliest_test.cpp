#include "temper/generate/likeliest.h"

#include <doctest/doctest.h>

#include <limits>

using namespace temper;

TEST_CASE("the likeliest tokens come first, of equals the lowest id, however many are asked for") {
  const float kLeast = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits{1, 3, kLeast, 3, -2, 1};
  const std::vector<int32_t> all{1, 3, 0, 5, 4, 2};
  for (int64_t k = 0; k <= 8; ++k) {
    CAPTURE(k);
    const auto found = likeliest_ids(logits.data(), 6, k);
    CHECK(found == std::vector<int32_t>(all.begin(), all.begin() + std::min<int64_t>(k, 6)));
  }
}
