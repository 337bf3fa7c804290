// Experts in MXFP4 (OCP Microscaling Formats, version 1.0, sections 5.2 and 5.3): 32 numbers of
// four bits share a scale that is a power of two.
#pragma once

#include "temper/io/tensor_view.h"

namespace temper::models {

constexpr int64_t kMxfp4Block = 32;  // numbers of a scale

// blocks [rows, blocks of a row, 16] uint8, two numbers a byte, the low bits first; scales [rows,
// blocks of a row] uint8, 2^(scale - 127), 255: no number. Gives [rows, 32 blocks of a row] in
// bfloat16, which holds every value exactly, made when it is read.
TensorView mxfp4_values(const TensorView& blocks, const TensorView& scales);

}  // namespace temper::models
