#include "temper/base/random.h"

#include <cmath>
#include <numbers>

namespace temper {
namespace {
// SplitMix64's finaliser (Steele et al., 2014): spreads structured keys over all 64 bits.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {high(p1) ^ counter[1] ^ key[0], low(p1), high(p0) ^ counter[3] ^ key[1], low(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

RandomStream::RandomStream(uint64_t seed, RandomPurpose purpose, uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t k = mix(mix(seed) ^ static_cast<uint64_t>(purpose));
  key_ = {low(k), high(k)};
  salt_ = mix(mix(mix(k ^ a) ^ b) ^ c);
}

uint64_t RandomStream::bits64(uint64_t index) const {
  const auto words = philox(key_, {low(index), high(index), low(salt_), high(salt_)});
  return words[0] | (uint64_t{words[1]} << 32);
}
uint32_t RandomStream::bits(uint64_t index) const { return low(bits64(index)); }
float RandomStream::uniform(uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24f; }
double RandomStream::uniform_double(uint64_t index) const { return static_cast<double>(bits64(index) >> 11) * 0x1p-53; }

float RandomStream::normal(uint64_t index) const {
  const auto words = philox(key_, {low(index), high(index), low(salt_), high(salt_)});
  const double u = (words[0] + 1.0) * 0x1p-32;  // (0, 1]: the logarithm stays finite
  const double v = words[1] * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

uint64_t RandomStream::below(uint64_t index, uint64_t n) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits64(index)) * n) >> 64);
}

}  // namespace temper
