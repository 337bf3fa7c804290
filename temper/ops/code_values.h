// What the 16 codes of four-bit formats stand for. Plain C++ without LibTorch.
#pragma once

#include <array>
#include <cstddef>

namespace temper::ops {

// NormalFloat4, ascending from -1 to 1 (Dettmers et al., arXiv 2305.14314, appendix E).
inline constexpr std::array<float, 16> kNf4Values{
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
// E2M1: a sign, two bits of exponent, one of mantissa (OCP Microscaling Formats 1.0,
// section 5.3.3).
inline constexpr std::array<float, 16> kE2m1Values{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                   4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                   -2.0f, -3.0f, -4.0f, -6.0f};

// Of fp4 in bitsandbytes: codes from 8 on are negative (bitsandbytes/functional.py, get_4bit_type).
inline constexpr std::array<float, 16> kFp4Values = [] {
  constexpr std::array<float, 8> positive{0.0f, 0.0625f, 8.0f, 12.0f, 4.0f, 6.0f, 2.0f, 3.0f};
  std::array<float, 16> values{};
  for (size_t i = 0; i < 8; ++i) {
    values[i] = positive[i] / 12.0f;
    values[i + 8] = 0.0f - values[i];
  }
  return values;
}();
// Of IQ4_NL in GGUF (ggml-common.h, kvalues_iq4nl).
inline constexpr std::array<float, 16> kIq4NlValues{-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};
// Sixteen consecutive integers.
template <int kFirst>
inline constexpr std::array<float, 16> kIntegersFrom = [] {
  std::array<float, 16> values{};
  for (int i = 0; i < 16; ++i) values[static_cast<size_t>(i)] = static_cast<float>(kFirst + i);
  return values;
}();

}  // namespace temper::ops
