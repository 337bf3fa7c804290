// Where codes of four bits stand (temper/ops/native/kernels/quantized.h), and their values as byte
// shuffles look them up.
#pragma once

#include <cstdint>

#include "temper/ops/native/kernels/quantized.h"

namespace temper::kernels {

// FormatRow::values by bytes: byte j, from the lowest, of value i at [16 * j + i].
const uint8_t* four_bit_bytes(WeightFormat format);

// Products of few rows read codes by four indices, which then share a scale.
inline bool in_fours(int64_t group) { return group % 4 == 0; }

// The byte of a panel in which index i of row r is, r below half a panel. In panels of 16 rows and
// in_fours(): [i / 4][r / 4][i % 4][r % 4], else [i][r].
inline int64_t four_bits_place(int64_t panel, int64_t group, int64_t i, int64_t r) {
  return panel == 16 && in_fours(group) ? i / 4 * 32 + r / 4 * 16 + i % 4 * 4 + r % 4
                                        : i * (panel / 2) + r;
}

}  // namespace temper::kernels
