// A quantized matrix as a file has it. Plain C++ without LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "temper/ops/formats.h"

namespace temper::ops {

// One code a byte, row-major [rows, width]: 0 .. 2^bits - 1, of CodeKind::kInt8 the byte in two's
// complement, of kE4m3 the float's byte, which is not NaN (0x7f, 0xff). All numbers are finite.
struct Codes {
  WeightFormat format = WeightFormat::kNf4;
  int64_t rows = 0, width = 0;
  // Values of a row that share a scale; divides width. 0: FormatRow::block, in blocks of the
  // row-major matrix, which may cross row ends (not for kOwnBlock and nested formats).
  int64_t group = 0;
  std::vector<uint8_t> codes;  // [rows * width]
  std::vector<float> scales;   // [rows * width / group]; of nested formats one a super-block
  std::vector<float> offsets;  // zero points or minimums, as scales; empty: none
  // Nested formats only, [rows * width / group]: the scale of a group is float32(scale of its
  // super-block * sub_scale), and its minimum likewise, of sub_offsets up to 127.
  std::vector<int8_t> sub_scales;
  std::vector<uint8_t> sub_offsets;
  // [width] or empty: column i of the codes is multiplied by input order[i], so that columns which
  // share a scale stand together (GPTQ's act order). Products add up in the order of the codes.
  std::vector<int32_t> order;
};

// Throws Error where sizes disagree, a group does not divide the width, or the order names an input
// twice or one that is not there.
void check_codes(const Codes& codes);

}  // namespace temper::ops
