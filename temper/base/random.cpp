#include "temper/base/random.h"

#include <cmath>
#include <numbers>

#include "temper/base/exact_math.h"

namespace temper {
namespace {
// SplitMix64's finalizer (Steele et al., 2014): spreads structured keys over all 64 bits.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
}  // namespace

RandomStream::RandomStream(uint64_t seed, RandomPurpose purpose, uint64_t a, uint64_t b,
                           uint64_t c) {
  const uint64_t k = mix(mix(seed) ^ static_cast<uint64_t>(purpose));
  key_ = {low(k), high(k)};
  salt_ = mix(mix(mix(k ^ a) ^ b) ^ c);
}

double RandomStream::uniform_double(uint64_t index) const {
  return static_cast<double>(bits64(index) >> 11) * 0x1p-53;
}

float RandomStream::normal(uint64_t index) const {
  const uint64_t word = bits64(index);
  const double u = (low(word) + 1.0) * 0x1p-32;  // (0, 1]: the logarithm stays finite
  const double v = high(word) * 0x1p-32;
  const double angle = 2.0 * std::numbers::pi * v;
  return exact::rounded(std::sqrt(-2.0 * std::log(u)) * std::cos(angle),
                        [&] { return std::sqrt(-2.0 * exact::log(u)) * exact::cos(angle); });
}

uint64_t RandomStream::below(uint64_t index, uint64_t n) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits64(index)) * n) >> 64);
}

}  // namespace temper
