// Counter-based random numbers: a draw depends on its key alone, never on what was drawn before or by whom.
// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace temper {

// What a draw is for: the first word of every key, so that no two uses ever share a stream.
enum class RandomPurpose : uint32_t { kInit = 1, kShuffle = 2, kMixing = 3, kDropout = 4, kSampling = 5, kDemo = 6 };

// Four independent uniform 32-bit words for (key, counter).
std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter);

// A named stream of draws. `a`, `b`, `c` are what the purpose calls for (step, module, row, sample, ...); the index is a
// position within the stream.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomPurpose purpose, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0);

  uint32_t bits(uint64_t index) const;            // uniform over 32-bit words
  uint64_t bits64(uint64_t index) const;          // uniform over 64-bit words
  float uniform(uint64_t index) const;            // [0, 1), 24 bits
  double uniform_double(uint64_t index) const;    // [0, 1), 53 bits
  float normal(uint64_t index) const;             // mean 0, deviation 1 (Box-Muller, in double, rounded once)
  uint64_t below(uint64_t index, uint64_t n) const;  // [0, n), n > 0

 private:
  std::array<uint32_t, 2> key_;
  uint64_t salt_;
};

}  // namespace temper
