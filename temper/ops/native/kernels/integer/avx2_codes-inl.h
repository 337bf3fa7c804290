// What AVX2 and AVX-VNNI share (tile-inl.h says what is asked for). In an unnamed namespace: each
// of the files that include it is compiled for other processors.
#pragma once

#include <immintrin.h>

namespace temper::kernels {
namespace {

// kColumns: of a panel. kAdded: 128 or 0, added to the integers of weights.
template <int kColumns, int kAdded>
struct Avx2Codes {
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr int kLanes = 8, kPanel = kColumns, kOffset = kAdded;

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

  static void eight(const unsigned char* codes, Ints* out) {
    const Ints sign = _mm256_set1_epi8(static_cast<char>(kAdded));
#pragma GCC unroll 2
    for (int part = 0; part < kPanel / 16; ++part) {
      turn_16(codes + 16 * part, kPanel, out + 2 * part);
      out[2 * part] = _mm256_xor_si256(out[2 * part], sign);
      out[2 * part + 1] = _mm256_xor_si256(out[2 * part + 1], sign);
    }
  }
  // The lower halves of the bytes are the panel's first rows. Panels of 16 (four_bits_place): four
  // indices of four rows stand together.
  static void four(const Table& table, const unsigned char* codes, Ints* out) {
    constexpr int kHalf = kPanel / kLanes / 2;
    Ints both[kHalf];
    if constexpr (kPanel == 16)
      both[0] = turned(load(codes));
    else
      turn_16(codes, 16, both);
    const Ints mask = _mm256_set1_epi8(15);
#pragma GCC unroll 2
    for (int v = 0; v < kHalf; ++v) {
      out[v] = _mm256_shuffle_epi8(table.bytes, _mm256_and_si256(both[v], mask));
      out[kHalf + v] =
          _mm256_shuffle_epi8(table.bytes, _mm256_and_si256(_mm256_srli_epi16(both[v], 4), mask));
    }
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

 private:
  // Each four rows of four indices, index by index, to row by row.
  static Ints turned(Ints x) {
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                      0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
  }
  static Ints two(const unsigned char* first, const unsigned char* second) {
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(second)), 1);
  }
  // 16 rows of four indices that are `stride` bytes apart: the bytes of rows 0 to 7 and 8 to 15.
  static void turn_16(const unsigned char* from, int stride, Ints* out) {
    // Index i of rows 4d to 4d + 3 is 32 bits: 0 and 1 of d = 0 and 2, then of 1 and 3.
    const Ints order = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
    const Ints first = _mm256_permutevar8x32_epi32(two(from, from + stride), order),
               second =
                   _mm256_permutevar8x32_epi32(two(from + 2 * stride, from + 3 * stride), order);
    out[0] = turned(_mm256_unpacklo_epi64(first, second));
    out[1] = turned(_mm256_unpackhi_epi64(first, second));
  }
};

}  // namespace
}  // namespace temper::kernels
