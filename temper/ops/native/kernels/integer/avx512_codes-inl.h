// What AVX-512 and AVX512-VNNI share (tile-inl.h says what is asked for). In an unnamed namespace:
// each of the files that include it is compiled for other processors.
#pragma once

#include <immintrin.h>

namespace temper::kernels {
namespace {

// kAdded: 128 or 0, added to the integers of weights.
template <int kAdded>
struct Avx512Codes {
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr bool kReadsPlanes = true;
  // 24 of 32 registers hold sums.
  static constexpr int kLanes = 16, kPanel = 32, kTileRows = 12, kOffset = kAdded;

  static Ints set(int x) { return _mm512_set1_epi32(x); }
  static Ints load(const unsigned char* from) { return _mm512_loadu_si512(from); }
  static void store(Ints x, unsigned char* to) { _mm512_storeu_si512(to, x); }
  static Ints broadcast(const signed char* four) {
    int x;
    __builtin_memcpy(&x, four, 4);
    return _mm512_set1_epi32(x);
  }
  struct Table {
    Ints bytes;
    explicit Table(const signed char* table)
        : bytes(table ? _mm512_broadcast_i32x4(
                            _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)),
                                          _mm_set1_epi8(static_cast<char>(kAdded))))
                      : _mm512_setzero_si512()) {}
  };

  // Index i of rows 4d to 4d + 3 is 32 bits, 8i + d of two vectors.
  static void eight(const unsigned char* codes, Ints* out) {
    const Ints first = load(codes), second = load(codes + 64),
               sign = _mm512_set1_epi8(static_cast<char>(kAdded));
    const Ints lower = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27),
               upper = _mm512_add_epi32(lower, _mm512_set1_epi32(4));
    out[0] = _mm512_xor_si512(turned(_mm512_permutex2var_epi32(first, lower, second)), sign);
    out[1] = _mm512_xor_si512(turned(_mm512_permutex2var_epi32(first, upper, second)), sign);
  }
  // Index i of rows 4d to 4d + 3, and in the upper halves of the bytes of 16 rows further, is 32
  // bits, 4i + d.
  static void four(const Table& table, const unsigned char* codes, Ints* out) {
    const Ints order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
               both = turned(_mm512_permutexvar_epi32(order, load(codes))),
               mask = _mm512_set1_epi8(15);
    out[0] = _mm512_shuffle_epi8(table.bytes, _mm512_and_si512(both, mask));
    out[1] = _mm512_shuffle_epi8(table.bytes, _mm512_and_si512(_mm512_srli_epi16(both, 4), mask));
  }

  static Ints fours(const unsigned char* plane) {
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), load(plane));
  }
  static Ints twos(const unsigned char* plane) {
    const Ints x = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 0, 4, 4, 1, 1, 5, 5, 2, 2, 6, 6, 3, 3, 7, 7),
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(plane))));
    return _mm512_sllv_epi32(x, _mm512_broadcast_i32x4(_mm_setr_epi32(4, 0, 4, 0)));
  }
  static Ints ones(const unsigned char* plane) {
    const Ints x = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
        _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(plane))));
    return _mm512_sllv_epi32(x, _mm512_broadcast_i32x4(_mm_setr_epi32(6, 4, 2, 0)));
  }
  template <int kShift>
  static Ints masked(Ints x, int mask) {
    return _mm512_and_si512(_mm512_srli_epi32(x, kShift), set_bytes(mask));
  }
  static Ints either(Ints a, Ints b) { return _mm512_or_si512(a, b); }
  static Ints add_bytes(Ints a, Ints b) { return _mm512_add_epi8(a, b); }
  static Ints set_bytes(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  // Each four rows of four indices, index by index, to row by row.
  static Ints turned(Ints x) {
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2,
                                                                       6, 10, 14, 3, 7, 11, 15)));
  }

  static Ints subtract(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  static Ints multiply(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
  static Ints to_int(Floats x) { return _mm512_cvttps_epi32(x); }
  static Floats to_float(Ints x) { return _mm512_cvtepi32_ps(x); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(Floats x, float* to) { _mm512_storeu_ps(to, x); }
  static Floats set(float x) { return _mm512_set1_ps(x); }
  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
};

}  // namespace
}  // namespace temper::kernels
