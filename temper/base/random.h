// Counter-based random numbers: a draw depends on its key alone, never on what was drawn before or
// by whom. Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace temper {

// The purpose of a draw: the first word of every key, so that no two uses ever share a stream.
enum class RandomPurpose : uint32_t {
  kInit = 1,
  kShuffle = 2,
  kMixing = 3,
  kDropout = 4,
  kSampling = 5,
  kDemo = 6,
  kEmbeddingNoise = 7,
  kPairs = 8,
  kVerification = 9
};

// Four independent uniform 32-bit words for (key, counter).
// Inline, as is what a loop calls: the compiler makes vectors of it.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key,
                                      std::array<uint32_t, 4> counter) {
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// A named stream of draws. `a`, `b`, `c` are what the purpose calls for (step, module, row, sample,
// ...); the index is a position within the stream.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomPurpose purpose, uint64_t a = 0, uint64_t b = 0,
               uint64_t c = 0);

  // Uniform over 64-bit words, over 32-bit words, and over [0, 1) in 24 bits.
  uint64_t bits64(uint64_t index) const {
    const auto words = words_at(index);
    return words[0] | (uint64_t{words[1]} << 32);
  }
  uint32_t bits(uint64_t index) const { return words_at(index)[0]; }
  float uniform(uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24f; }
  double uniform_double(uint64_t index) const;  // [0, 1), 53 bits
  float normal(uint64_t index) const;  // mean 0, deviation 1 (Box-Muller, in double, rounded once)
  uint64_t below(uint64_t index, uint64_t n) const;  // [0, n), n > 0

 private:
  std::array<uint32_t, 4> words_at(uint64_t index) const {
    return philox(key_, {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                         static_cast<uint32_t>(salt_), static_cast<uint32_t>(salt_ >> 32)});
  }

  std::array<uint32_t, 2> key_;
  uint64_t salt_;
};

}  // namespace temper
