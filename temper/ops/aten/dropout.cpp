// Dropout: the draws of temper/base/random.h, made on the device by arithmetic on int64, which
// wraps as unsigned numbers of 64 bits do.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "temper/base/random.h"
#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"

namespace temper::ops {
namespace aten_impl {
namespace {

constexpr uint64_t kMixAdd = 0x9E3779B97F4A7C15u, kMixFirst = 0xBF58476D1CE4E5B9u,
                   kMixSecond = 0x94D049BB133111EBu;
constexpr int64_t kLow32 = 0xFFFFFFFF;

int64_t as_signed(uint64_t x) { return static_cast<int64_t>(x); }

// SplitMix64's finalizer, by which RandomStream makes keys.
uint64_t mix(uint64_t x) {
  x += kMixAdd;
  x = (x ^ (x >> 30)) * kMixFirst;
  x = (x ^ (x >> 27)) * kMixSecond;
  return x ^ (x >> 31);
}

// x >> bits of unsigned numbers.
at::Tensor shifted(const at::Tensor& x, int64_t bits) {
  return x.bitwise_right_shift(bits).bitwise_and_((int64_t{1} << (64 - bits)) - 1);
}
at::Tensor mix(const at::Tensor& number) {
  at::Tensor x = number + as_signed(kMixAdd);
  x = x.bitwise_xor(shifted(x, 30)).mul_(as_signed(kMixFirst));
  x = x.bitwise_xor(shifted(x, 27)).mul_(as_signed(kMixSecond));
  return x.bitwise_xor(shifted(x, 31));
}

at::Tensor low(const at::Tensor& x) { return x.bitwise_and(kLow32); }
at::Tensor high(const at::Tensor& x) { return shifted(x, 32); }

// The first of the four words that temper::philox gives. Words are int64 below 2^32 and broadcast.
at::Tensor philox_word(std::array<uint32_t, 2> key, std::array<at::Tensor, 4> counter) {
  // The upper half of p, xor a word and the key.
  const auto mixed = [](const at::Tensor& p, const at::Tensor& word, uint32_t by) {
    return high(p).bitwise_xor(word.bitwise_xor(int64_t{by}));
  };
  for (int round = 0; round < 10; ++round) {
    const at::Tensor p0 = counter[0] * int64_t{0xD2511F53}, p1 = counter[2] * int64_t{0xCD9E8D57};
    counter = {mixed(p1, counter[1], key[0]), low(p1), mixed(p0, counter[3], key[1]), low(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter[0];
}

// RandomStream(seed, kDropout, step, module, row).bits(index) for each row [R] and each index below
// the width, [R, width].
at::Tensor dropout_bits(const DropoutKey& key, const at::Tensor& row, int64_t width) {
  const uint64_t k = mix(mix(key.seed) ^ static_cast<uint64_t>(RandomPurpose::kDropout));
  const uint64_t named = mix(mix(k ^ key.step) ^ key.module);
  const at::Tensor salt = mix(row.bitwise_xor(as_signed(named))).unsqueeze(1);
  const at::Tensor index = at::arange(width, row.options()).unsqueeze(0);
  return philox_word({static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32)},
                     {low(index), high(index), low(salt), high(salt)});
}

}  // namespace
}  // namespace aten_impl

at::Tensor AtenBackend::dropout(const DropoutKey& key, const at::Tensor& x) const {
  const aten_impl::BelowAutograd below;
  const int64_t rows = x.size(0), width = x.size(1),
                most = std::max<int64_t>(
                    aten_impl::scratch_numbers(x.device()) / 8 / std::max<int64_t>(width, 1), 1);
  // Kept where uniform(i) >= p, in integers.
  const auto dropped = static_cast<int64_t>(std::ceil(key.p * 0x1p24));
  at::Tensor y = x * (1.0 / (1.0 - key.p));
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    const at::Tensor bits = aten_impl::dropout_bits(key, key.row.narrow(0, first, count), width);
    y.narrow(0, first, count).masked_fill_(bits.bitwise_right_shift(8).lt(dropped), 0);
  }
  return y;
}

}  // namespace temper::ops
