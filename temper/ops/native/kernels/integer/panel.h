// One panel of a product in integers (gemm.h in this folder), and the instructions that compute it.
// Plain data and no library: the files that include this are compiled for one kind of processor
// each, and what the linker finds there must not serve another.
#pragma once

namespace temper::kernels {

// The activations of a product are rounded in blocks of at most so many values.
constexpr long kIntegerBlock = 64;
// How far down k codes are unpacked at once, in whole blocks, and the bytes that takes for the
// widest panel.
constexpr long kIntegerDepth = 256, kIntegerScratch = kIntegerDepth * 32;

struct IntegerPanel {
  // The panel's codes and scales, laid out as quantized.h says; `group` is a multiple of 4 except
  // for scalar_panel.
  int bits;                  // 4 or 8; with `planes` below 2, 3, 5 or 6, too
  const signed char* table;  // of 4 bits: the integers of the codes
  int first;                 // of 2, 3, 5 and 6 bits: the integer of code 0
  float unit;                // a value is its integer * unit * scale
  const unsigned char* codes;
  const float* scales;
  const float* offsets;  // laid out as scales; null: none
  bool zero_points;  // offsets are integers below 256 that codes are counted from, else minimums
  long width, group;
  // Activations [rows, width], rows x_row apart; their blocks' scales and sums [rows, blocks].
  long rows;
  const signed char* x;
  long x_row;
  const float* x_scales;
  const int* x_sums;
  long blocks;
  float* c;                // results [rows, the panel's width]
  unsigned char* scratch;  // kIntegerScratch bytes, 64-byte aligned
};

// Instructions that compute a panel, all of them to the same bits.
struct IntegerInstructions {
  const char* name;
  void (*multiply)(const IntegerPanel&);
  bool planes;  // whether they read codes of 2, 3, 5 and 6 bits; else such codes come as bytes
};
// AVX512-VNNI, and AVX-512 without it, for panels of 32.
extern const IntegerInstructions kAvx512Vnni, kAvx512;
// AVX-VNNI, and AVX2 without it, for panels of 16.
extern const IntegerInstructions kAvxVnni, kAvx2;
// NEON without and with its dot product, for panels of 16.
extern const IntegerInstructions kNeon, kNeonDot;

}  // namespace temper::kernels
