// The block formats of GGUF (gguf::Block), row by row, as codes and as float32 values. The values
// are those of gguf-py's quants.py, each operation in float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "temper/io/gguf.h"
#include "temper/ops/formats.h"

namespace temper::models {

// The storage format that holds such blocks as they are.
ops::WeightFormat gguf_format(gguf::Block type);

// A row of `width` values: value = code_value * scale, or code_value * scale - offset where the
// format has offsets (ops::FormatRow). Of K-quants, whose super-blocks have 256 values, scale =
// scales[super-block] * sub_scales[group], offset likewise.
struct GgufRow {
  int64_t group = 0;                 // values that share a scale
  std::vector<uint8_t> codes;        // [width]
  std::vector<float> scales;         // [width / group], of K-quants [width / 256]
  std::vector<float> offsets;        // as scales; empty: none
  std::vector<int8_t> sub_scales;    // K-quants: [width / group]
  std::vector<uint8_t> sub_offsets;  // those that have offsets
};

// Reads the bytes of a row. `row` is used again.
void read_gguf_row(gguf::Block type, const std::byte* bytes, int64_t width, GgufRow& row);
// The values [width] of the row.
void gguf_row_values(gguf::Block type, const GgufRow& row, int64_t width, float* values);

}  // namespace temper::models
