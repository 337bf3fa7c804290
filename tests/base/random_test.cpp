#include "temper/base/random.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace temper;

TEST_CASE("Philox4x32-10 gives the known answers of Random123's kat_vectors") {
  CHECK(philox({0, 0}, {0, 0, 0, 0}) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("normal draws have mean 0 and deviation 1, and depend on every part of the key") {
  const RandomStream stream(7, RandomPurpose::kInit, 1, 2, 3);
  double sum = 0, squares = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal(static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  CHECK(std::abs(sum / n) < 0.02);
  CHECK(std::abs(squares / n - 1.0) < 0.03);
  CHECK(stream.bits64(0) != RandomStream(8, RandomPurpose::kInit, 1, 2, 3).bits64(0));
  CHECK(stream.bits64(0) != RandomStream(7, RandomPurpose::kShuffle, 1, 2, 3).bits64(0));
  CHECK(stream.bits64(0) != RandomStream(7, RandomPurpose::kInit, 2, 1, 3).bits64(0));
  CHECK(stream.bits64(0) != RandomStream(7, RandomPurpose::kInit, 1, 2, 4).bits64(0));
}
