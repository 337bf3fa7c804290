// How the tensors of a GGUF file are made from a model's parameters, and the reverse.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "temper/models/gguf/gguf_form.h"
#include "temper/nn/module.h"

namespace temper::models {

// A tensor of the file, or an entry of its first dimension, that is made from one parameter. A
// parameter may become several pieces; each of its elements is in one of them.
struct GgufPiece {
  std::string tensor;
  int64_t expert = -1;  // the entry; below 0: the piece is the whole tensor
  std::vector<int64_t> shape;
  GgufPart part;  // how it is made; `own` and `gguf` are not set

  // Of the parameter's float32 value, of the piece's shape.
  at::Tensor made(const at::Tensor& value) const;
  // For each of the piece's rows, or elements where these move within rows, which row or element of
  // the parameter it is. The file's order of both is row-major.
  at::Tensor sources(at::IntArrayRef parameter_shape) const;
};

// The pieces of a parameter; empty: it has no name in GGUF.
std::vector<GgufPiece> gguf_pieces(const std::string& name, const nn::Parameter& parameter,
                                   const GgufForm& form);

}  // namespace temper::models
