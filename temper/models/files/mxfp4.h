// Experts in MXFP4 (OCP Microscaling Formats, version 1.0, sections 5.2 and 5.3): 32 numbers of
// four bits share a scale that is a power of two.
#pragma once

#include <memory>

#include "temper/io/safetensors.h"
#include "temper/ops/weight.h"

namespace temper::models {

// blocks [rows, blocks of a row, 16] uint8, two numbers a byte, the low bits first; scales [rows,
// blocks of a row] uint8, 2^(scale - 127), 255: no number. Gives [rows, 32 blocks of a row] in
// bfloat16, which holds every value exactly, made when it is read.
TensorView mxfp4_values(const TensorView& blocks, const TensorView& scales);

// Whether mxfp4_values() gave the view; whether it gave any of a checkpoint's.
bool is_mxfp4(const TensorView& view);
bool hold_mxfp4(const TensorMap& tensors);

// The codes of such a view, whose scales are kept in float32. Throws DataError where a value is not
// finite.
std::shared_ptr<const ops::QuantizedWeight> mxfp4_weight(const TensorView& view, at::Device device);

}  // namespace temper::models
