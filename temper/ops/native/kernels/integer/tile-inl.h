// The register tile of products in integers: a template over the instructions, which each of the
// .cpp files of this folder instantiates for its own. Includes no library, as panel.h.
//
// Isa: kLanes, kPanel, kTileRows; Ints, kLanes integers of 32 bits, or four times as many bytes;
//     Floats; kOffset, what is added to the integers of weights to make them unsigned bytes, or 0;
//     set(int), load(const unsigned char*), store(Ints, unsigned char*), broadcast(four bytes);
//     Table, made of the table's 16 bytes;
//     eight(codes, Ints out[kVectors]): the bytes of four indices of a panel's rows, side by side
//     for each row, of 8-bit codes that begin there; four(Table, ..): of 4-bit codes;
//     kReadsPlanes; if so, of codes of 2, 3, 5 and 6 bits, for two vectors:
//         fours, twos, ones(plane): a unit's plane (quantized.h); index i of rows 4d to 4d + 3 is
//         32 bits, 4d + i, its bits from bit 0, 4 or 6 of each byte on, those of rows half a panel
//         further from 4, 6 or 7 on;
//         masked<shift>(Ints, int mask): each byte, shifted to the right; turned(Ints): each four
//         rows of four indices, index by index, to row by row; either(a, b), add_bytes(a, b),
//         set_bytes(int);
//     dot(Ints sum, Ints w, Ints x): the sum of four products added in each lane, exactly;
//     subtract, multiply(Ints, Ints), to_int(Floats), to_float(Ints);
//     load(const float*), store(Floats, float*), set(float), zero(), add, subtract, multiply.
#pragma once

#include "temper/ops/native/kernels/integer/panel.h"

namespace temper::kernels {

// How far ahead codes are fetched, in fours of indices: processors do so by themselves, but not
// past the end of a page.
constexpr long kCodesAhead = 32;

template <class Isa>
constexpr int kVectorsOf = Isa::kPanel / Isa::kLanes;

// Four indices of a panel whose codes lie in planes; `first` is the integer of code 0.
template <class Isa, int kBits>
inline void from_planes(const unsigned char* unit, int first, typename Isa::Ints* out) {
  constexpr int kHalf = Isa::kPanel / 2;
  typename Isa::Ints low = Isa::set(0), high = low;
  if constexpr (kBits >= 4) {
    const auto fours = Isa::fours(unit);
    low = Isa::template masked<0>(fours, 15);
    high = Isa::template masked<4>(fours, 15);
    unit += 4 * kHalf;
  }
  if constexpr (kBits & 2) {
    constexpr int kDown = kBits >= 4 ? 0 : 4;
    const auto twos = Isa::twos(unit);
    low = Isa::either(low, Isa::template masked<kDown>(twos, 0x30 >> kDown));
    high = Isa::either(high, Isa::template masked<kDown + 2>(twos, 0x30 >> kDown));
    unit += 2 * kHalf;
  }
  if constexpr (kBits & 1) {
    constexpr int kDown = 7 - kBits;
    const auto ones = Isa::ones(unit);
    low = Isa::either(low, Isa::template masked<kDown>(ones, 0x40 >> kDown));
    high = Isa::either(high, Isa::template masked<kDown + 1>(ones, 0x40 >> kDown));
  }
  const auto added = Isa::set_bytes(first + Isa::kOffset);
  out[0] = Isa::add_bytes(Isa::turned(low), added);
  out[1] = Isa::add_bytes(Isa::turned(high), added);
}

// Weights as the tile reads them: four indices, k/4-th, of all rows of the panel.
template <class Isa, int kBits>
struct CodesAsTheyLie {
  static constexpr long kBytes = kBits * Isa::kPanel / 2;  // of four indices
  const unsigned char* codes;
  typename Isa::Table table;
  int first;

  CodesAsTheyLie(const IntegerPanel& p) : codes(p.codes), table(p.table), first(p.first) {}
  inline void at(long fours, typename Isa::Ints* out) const {
    const unsigned char* from = codes + fours * kBytes;
#pragma GCC unroll 4
    for (long i = 0; i < kBytes; i += 64) __builtin_prefetch(from + kCodesAhead * kBytes + i);
    if constexpr (kBits == 4)
      Isa::four(table, from, out);
    else if constexpr (kBits == 8)
      Isa::eight(from, out);
    else
      from_planes<Isa, kBits>(from, first, out);
  }
};
template <class Isa>
struct UnpackedCodes {
  const unsigned char* bytes;  // of index 0

  inline void at(long fours, typename Isa::Ints* out) const {
#pragma GCC unroll 4
    for (int v = 0; v < kVectorsOf<Isa>; ++v)
      out[v] = Isa::load(bytes + (fours * kVectorsOf<Isa> + v) * 4 * Isa::kLanes);
  }
};

// Consecutive blocks of a row.
struct BlockRange {
  long first, end;  // of blocks
  long index;       // where the first one begins
};

// kRows rows from `row` on by the panel, over blocks of k; adds to c unless the range is the first.
template <class Isa, int kRows, class Codes>
inline void integer_tile(const IntegerPanel& p, long row, const Codes& codes, BlockRange range) {
  constexpr int kVectors = kVectorsOf<Isa>;
  using Ints = typename Isa::Ints;
  using Floats = typename Isa::Floats;
  const signed char* x = p.x + row * p.x_row;
  const float* x_scales = p.x_scales + row * p.blocks;
  const int* x_sums = p.x_sums + row * p.blocks;
  float* c = p.c + row * Isa::kPanel;
  long index = range.index, group = index / p.group;
  for (long b = range.first; b < range.end; ++b) {
    const long left = (group + 1) * p.group - index,
               end = index + (left < kIntegerBlock ? left : kIntegerBlock);
    Ints sum[kRows][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sum[i][v] = Isa::set(Isa::kOffset ? -Isa::kOffset * x_sums[i * p.blocks + b] : 0);
    for (; index < end; index += 4) {
      Ints w[kVectors];
      codes.at(index >> 2, w);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Ints four = Isa::broadcast(x + i * p.x_row + index);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[i][v] = Isa::dot(sum[i][v], w[v], four);
      }
    }
    const float* scales = p.scales + group * Isa::kPanel;
    const float* offsets = p.offsets ? p.offsets + group * Isa::kPanel : nullptr;
    const bool begins = b == 0;
    if (left <= kIntegerBlock) ++group;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const float scale = x_scales[i * p.blocks + b];
      const Floats x_scale = Isa::set(scale * p.unit);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Ints whole = sum[i][v];
        if (offsets && p.zero_points)
          whole =
              Isa::subtract(whole, Isa::multiply(Isa::to_int(Isa::load(offsets + v * Isa::kLanes)),
                                                 Isa::set(x_sums[i * p.blocks + b])));
        float* to = c + i * Isa::kPanel + v * Isa::kLanes;
        Floats y =
            Isa::add(begins ? Isa::zero() : Isa::load(to),
                     Isa::multiply(Isa::to_float(whole),
                                   Isa::multiply(x_scale, Isa::load(scales + v * Isa::kLanes))));
        if (offsets && !p.zero_points) {
          const Floats of_sum = Isa::set(static_cast<float>(x_sums[i * p.blocks + b]));
          y = Isa::subtract(
              y, Isa::multiply(
                     of_sum, Isa::multiply(Isa::set(scale), Isa::load(offsets + v * Isa::kLanes))));
        }
        Isa::store(y, to);
      }
    }
  }
}

// `rows` of them, at most kRows.
template <class Isa, int kRows, class Codes>
inline void integer_rows(const IntegerPanel& p, long row, long rows, const Codes& codes,
                         BlockRange range) {
  if (rows == kRows) return integer_tile<Isa, kRows>(p, row, codes, range);
  if constexpr (kRows > 1) integer_rows<Isa, kRows - 1>(p, row, rows, codes, range);
}

// The range of blocks after another that is unpacked at once.
template <class Isa>
inline BlockRange next_range(const IntegerPanel& p, BlockRange before) {
  BlockRange range{before.end, before.end, before.index};
  for (long b = before.first; b < before.end; ++b) {
    const long left = (range.index / p.group + 1) * p.group - range.index;
    range.index += left < kIntegerBlock ? left : kIntegerBlock;
  }
  for (long end = range.index; range.end < p.blocks; ++range.end) {
    const long left = (end / p.group + 1) * p.group - end;
    end += left < kIntegerBlock ? left : kIntegerBlock;
    if (end - range.index > kIntegerDepth) break;
  }
  return range;
}

template <class Isa, int kBits>
inline void unpack(const IntegerPanel& p, const CodesAsTheyLie<Isa, kBits>& codes, BlockRange range,
                   long end) {
  unsigned char* to = p.scratch;
  for (long index = range.index; index < end; index += 4) {
    typename Isa::Ints w[kVectorsOf<Isa>];
    codes.at(index / 4, w);
#pragma GCC unroll 4
    for (int v = 0; v < kVectorsOf<Isa>; ++v, to += 4 * Isa::kLanes) Isa::store(w[v], to);
  }
}

// The whole panel. So few rows that reading the codes takes as long are multiplied by them as they
// lie; for more they are unpacked first.
template <class Isa, int kBits>
inline void integer_panel(const IntegerPanel& p) {
  constexpr int kDirectRows = Isa::kTileRows < 4 ? Isa::kTileRows : 4;
  const CodesAsTheyLie<Isa, kBits> codes(p);
  if (p.rows <= kDirectRows)
    return integer_rows<Isa, kDirectRows>(p, 0, p.rows, codes, BlockRange{0, p.blocks, 0});
  const long tiles = (p.rows + Isa::kTileRows - 1) / Isa::kTileRows,
             height = (p.rows + tiles - 1) / tiles;
  for (BlockRange range = next_range<Isa>(p, {0, 0, 0}); range.first < p.blocks;) {
    const BlockRange next = next_range<Isa>(p, range);
    unpack<Isa, kBits>(p, codes, range, next.index);
    const UnpackedCodes<Isa> unpacked{p.scratch - range.index * Isa::kPanel};
    const unsigned char* ahead = p.codes + next.index * Isa::kPanel * kBits / 8;
    for (long i = 0; i < kIntegerDepth * Isa::kPanel * kBits / 8; i += 64)
      __builtin_prefetch(ahead + i, 0, 2);
    for (long row = 0; row < p.rows; row += height)
      integer_rows<Isa, Isa::kTileRows>(p, row, height < p.rows - row ? height : p.rows - row,
                                        unpacked, range);
    range = next;
  }
}
template <class Isa>
void integer_panel_of(const IntegerPanel& p) {
  if constexpr (Isa::kReadsPlanes) {
    if (p.bits == 2) return integer_panel<Isa, 2>(p);
    if (p.bits == 3) return integer_panel<Isa, 3>(p);
    if (p.bits == 5) return integer_panel<Isa, 5>(p);
    if (p.bits == 6) return integer_panel<Isa, 6>(p);
  }
  p.bits == 4 ? integer_panel<Isa, 4>(p) : integer_panel<Isa, 8>(p);
}

}  // namespace temper::kernels
