// A matrix that products multiply by, in the form in which it is kept. Every product of a weight
// goes through the functions here, so that a format is chosen in one place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "temper/ops/codes.h"
#include "temper/ops/formats.h"
#include "temper/ops/integers.h"

namespace temper::ops {

// Codes and scales of a matrix. They never change, so that copies share them.
struct QuantizedWeight {
  enum class Layout {
    kPanels,  // native: as packed for this machine (kernels::QuantizedMatrix)
    kRows,    // aten: row-major, in planes of 8, 4, 2 and 1 bits; numbers as in Codes
  };
  WeightFormat format = WeightFormat::kNf4;
  int64_t rows = 0, width = 0;
  int64_t block = 0;         // values of the row-major matrix that share a scale
  at::Tensor codes;          // uint8
  at::Tensor scales;         // float32, or float16 where that is exact
  at::Tensor offsets;        // the same; undefined where there are none
  at::Tensor nested_scales;  // int8, of nested formats
  at::Tensor nested_offsets;
  at::Tensor order;  // int64 [width], Codes::order; undefined where inputs are in the codes' order
  Layout layout = Layout::kPanels;
  int64_t first_row = 0;  // of the tensors, in kRows: those before are not this weight's
};
// Whether codes and scales have the sizes of such a matrix in panels of this machine, whose width
// is panel_width().
bool is_in_panels(const QuantizedWeight& w);
int64_t panel_width();

// Codes::order on a device; undefined where it is empty.
at::Tensor order_of(const Codes& codes, at::Device device);
// Values [out, in] of the codes' columns, as the columns of inputs.
at::Tensor in_input_order(const QuantizedWeight& w, const at::Tensor& values);

// Rows of a frozen matrix that train, while its other rows do not.
struct TrainedRows {
  std::vector<int64_t> id;  // ascending
  at::Tensor values;        // [id.size(), in], which the matrix holds, too: what gradients are of
};

// [out, in]. A tensor is a weight of the format that its dtype says.
struct Weight {
  WeightFormat format = WeightFormat::kFloat32;
  at::Tensor values;  // contiguous; undefined where quantized
  std::shared_ptr<const QuantizedWeight> quantized;
  at::Tensor panels;                           // pack(*this) if the caller keeps it, else undefined
  Arithmetic arithmetic = Arithmetic::kExact;  // of bfloat16 and quantized formats
  std::shared_ptr<const TrainedRows> trained;  // of an embedding or a head; null: none are

  Weight() = default;
  Weight(at::Tensor values);  // NOLINT: implicit
  explicit Weight(std::shared_ptr<const QuantizedWeight> quantized);

  int64_t out() const { return quantized ? quantized->rows : values.size(0); }
  int64_t in() const { return quantized ? quantized->width : values.size(1); }
  // Whether x Wᵀ is computed in integers.
  bool in_integers() const { return arithmetic == Arithmetic::kInteger && has_integers(format); }
  // The tensor that autograd sees: the values, or for a frozen weight a tensor without a gradient.
  const at::Tensor& tensor() const { return quantized ? quantized->codes : values; }
  // What gradients of trained rows are of; undefined where there are none.
  at::Tensor trained_values() const { return trained ? trained->values : at::Tensor(); }
  // Rows [first, first + count), without word of trained ones: the same memory. first is a multiple
  // of 32.
  Weight part(int64_t first, int64_t count) const;
};

// Whether inputs are multiplied in an order of their own; the inputs x [N, in] in that order.
bool is_ordered(const Weight& w);
at::Tensor in_code_order(const Weight& w, const at::Tensor& x);

// The columns of Wᵀ, or of W, in blocks as products read them; undefined for float64 and quantized
// formats, which are multiplied as they lie.
at::Tensor pack(const Weight& w);
at::Tensor pack_transposed(const Weight& w);

// y = x Wᵀ (+ bias): x [N, in], y [N, out].
void multiply(const at::Tensor& x, const Weight& w, at::Tensor& y, const at::Tensor& bias = {});
// dx (+)= dy W: dy [N, out], dx [N, in]. `panels` is pack_transposed(w) if the caller has it.
void multiply_transposed(const at::Tensor& dy, const Weight& w, at::Tensor& dx, bool accumulate,
                         const at::Tensor& panels = {});

// dw (+)= dyᵀ x: the gradient of w's values, [out, in]. x_panels is pack_input(w, x) if the caller
// has it.
void weight_gradient(const Weight& w, const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                     bool accumulate, const at::Tensor& x_panels = {});
at::Tensor pack_input(const Weight& w, const at::Tensor& x);
// The same of w's trained rows alone, added to drows: dy [N, columns] are the gradients of the
// outputs from `first` on. Gives nothing to an undefined drows.
void trained_gradient(const Weight& w, int64_t first, const at::Tensor& dy, const at::Tensor& x,
                      at::Tensor& drows);

// The values that products see, float32 (or float64) [out, in], columns by input: a copy where the
// format is another.
at::Tensor read(const Weight& w);

// Codes of float32 values [out, in]. Throws DataError where a value is not finite.
std::shared_ptr<const QuantizedWeight> quantize(const at::Tensor& values, WeightFormat format,
                                                at::Device device = at::kCPU);
// Makes a weight of given codes. Throws Error where they are not what Codes says.
std::shared_ptr<const QuantizedWeight> from_codes(const Codes& codes, at::Device device = at::kCPU);

}  // namespace temper::ops
