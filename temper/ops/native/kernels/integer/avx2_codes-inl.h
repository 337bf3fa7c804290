// What AVX2 and AVX-VNNI share (tile-inl.h says what is asked for). In an unnamed namespace: each
// of the files that include it is compiled for other processors.
#pragma once

#include <immintrin.h>

namespace temper::kernels {
namespace {

// kAdded: 128 or 0, added to the integers of weights.
template <int kAdded>
struct Avx2Codes {
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr bool kReadsPlanes = true;
  static constexpr int kLanes = 8, kPanel = 16, kOffset = kAdded;

  static Ints set(int x) { return _mm256_set1_epi32(x); }
  static Ints load(const unsigned char* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(Ints x, unsigned char* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
  }
  static Ints broadcast(const signed char* four) {
    int x;
    __builtin_memcpy(&x, four, 4);
    return _mm256_set1_epi32(x);
  }
  struct Table {
    Ints bytes;
    explicit Table(const signed char* table)
        : bytes(table ? _mm256_broadcastsi128_si256(
                            _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)),
                                          _mm_set1_epi8(static_cast<char>(kAdded))))
                      : _mm256_setzero_si256()) {}
  };

  // Index i of rows 4d to 4d + 3 is 32 bits, 4i + d of two vectors.
  static void eight(const unsigned char* codes, Ints* out) {
    // 0 and 1 of d = 0 and 2, then of 1 and 3.
    const Ints order = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7),
               sign = _mm256_set1_epi8(static_cast<char>(kAdded));
    const Ints first = _mm256_permutevar8x32_epi32(load(codes), order),
               second = _mm256_permutevar8x32_epi32(load(codes + 32), order);
    out[0] = _mm256_xor_si256(turned(_mm256_unpacklo_epi64(first, second)), sign);
    out[1] = _mm256_xor_si256(turned(_mm256_unpackhi_epi64(first, second)), sign);
  }
  // Four indices of four rows stand together (four_bits_place), and in the upper halves of the
  // bytes those of eight rows further.
  static void four(const Table& table, const unsigned char* codes, Ints* out) {
    const Ints both = turned(load(codes)), mask = _mm256_set1_epi8(15);
    out[0] = _mm256_shuffle_epi8(table.bytes, _mm256_and_si256(both, mask));
    out[1] = _mm256_shuffle_epi8(table.bytes, _mm256_and_si256(_mm256_srli_epi16(both, 4), mask));
  }

  static Ints fours(const unsigned char* plane) {
    return _mm256_permutevar8x32_epi32(load(plane), _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  }
  static Ints twos(const unsigned char* plane) {
    const Ints x = _mm256_permutevar8x32_epi32(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(plane))),
        _mm256_setr_epi32(0, 0, 2, 2, 1, 1, 3, 3));
    return _mm256_sllv_epi32(x, _mm256_broadcastsi128_si256(_mm_setr_epi32(4, 0, 4, 0)));
  }
  static Ints ones(const unsigned char* plane) {
    const Ints x = _mm256_permutevar8x32_epi32(
        _mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(plane))),
        _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    return _mm256_sllv_epi32(x, _mm256_broadcastsi128_si256(_mm_setr_epi32(6, 4, 2, 0)));
  }
  template <int kShift>
  static Ints masked(Ints x, int mask) {
    return _mm256_and_si256(_mm256_srli_epi32(x, kShift), set_bytes(mask));
  }
  static Ints either(Ints a, Ints b) { return _mm256_or_si256(a, b); }
  static Ints add_bytes(Ints a, Ints b) { return _mm256_add_epi8(a, b); }
  static Ints set_bytes(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  // Each four rows of four indices, index by index, to row by row.
  static Ints turned(Ints x) {
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                      0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
  }

  static Ints subtract(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  static Ints multiply(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
  static Ints to_int(Floats x) { return _mm256_cvttps_epi32(x); }
  static Floats to_float(Ints x) { return _mm256_cvtepi32_ps(x); }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(Floats x, float* to) { _mm256_storeu_ps(to, x); }
  static Floats set(float x) { return _mm256_set1_ps(x); }
  static Floats zero() { return _mm256_setzero_ps(); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
};

}  // namespace
}  // namespace temper::kernels
