// The register tile of bfloat16 products whose instruction takes two steps of k at once. A template
// over the instructions: AVX512-BF16's in bfloat16_dot_avx512.cpp, a model of them in the tests.
// Includes nothing and calls no library: what is compiled here for one kind of processor must not
// be found by the linker for another.
//
// Isa: Vec, 16 lanes of 32 bits: zero(); load(const void*); store(Vec, float*);
// broadcast(uint32_t);
//     interleave_lower, interleave_upper(Vec, Vec): 16-bit values within blocks of 128 bits;
//     even_blocks, odd_blocks(Vec a, Vec b): blocks 0 and 2, or 1 and 3, of a, then of b;
//     lower_blocks, upper_blocks(Vec a, Vec b): blocks a0 b0 a1 b1, or a2 b2 a3 b3;
//     dot(Vec sum, Vec a, Vec b): in each lane sum = fma(high halves), then fma(low halves).
#pragma once

namespace temper::kernels {

constexpr int kDotColumns = 32, kDotRows = 12;

// c[kRows, 32] (row stride c_row) = its values if from_c, else 0, plus a b for `depth` values of k.
// a: pairs of k, the first in the high half; a last one without a partner has -0 in the low half.
// b: bfloat16 [depth, 32]. The earlier k stands in the high halves because VDPBF16PS begins there.
template <class Isa, int kRows>
inline void dot_tile(long depth, const unsigned* a, long a_row, const unsigned short* b, float* c,
                     long c_row, bool from_c) {
  using Vec = typename Isa::Vec;
  // Columns 0-3, 8-11, 16-19 and 24-27, as interleaving gives them; the others.
  Vec lower[kRows], upper[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    lower[i] = upper[i] = Isa::zero();
    if (!from_c) continue;
    const Vec left = Isa::load(c + i * c_row), right = Isa::load(c + i * c_row + 16);
    lower[i] = Isa::even_blocks(left, right);
    upper[i] = Isa::odd_blocks(left, right);
  }
  const auto add = [&](Vec first, Vec second, const unsigned* pairs) {
    const Vec b_lower = Isa::interleave_lower(second, first),
              b_upper = Isa::interleave_upper(second, first);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vec pair = Isa::broadcast(pairs[i * a_row]);
      lower[i] = Isa::dot(lower[i], pair, b_lower);
      upper[i] = Isa::dot(upper[i], pair, b_upper);
    }
  };
  for (; depth >= 2; depth -= 2, b += 2 * kDotColumns, ++a)
    add(Isa::load(b), Isa::load(b + kDotColumns), a);
  if (depth == 1) add(Isa::load(b), Isa::zero(), a);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    Isa::store(Isa::lower_blocks(lower[i], upper[i]), c + i * c_row);
    Isa::store(Isa::upper_blocks(lower[i], upper[i]), c + i * c_row + 16);
  }
}

// The tile of `rows` rows, 1 to kDotRows.
template <class Isa, int kRows = kDotRows>
inline void dot_tile_of(int rows, long depth, const unsigned* a, long a_row,
                        const unsigned short* b, float* c, long c_row, bool from_c) {
  if constexpr (kRows > 1)
    if (rows < kRows)
      return dot_tile_of<Isa, kRows - 1>(rows, depth, a, a_row, b, c, c_row, from_c);
  dot_tile<Isa, kRows>(depth, a, a_row, b, c, c_row, from_c);
}

// The same with AVX512-BF16, which the processor must have.
void avx512_dot_tile(int rows, long depth, const unsigned* a, long a_row, const unsigned short* b,
                     float* c, long c_row, bool from_c);

}  // namespace temper::kernels
