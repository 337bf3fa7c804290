// Which products of a weight round both factors to bfloat16 (Arithmetic in formats.h).
#pragma once

#include "temper/ops/formats.h"
#include "temper/ops/weight.h"

namespace temper::ops {

// Those of matrices that products read in bfloat16; under kAmx those of quantized ones, too.
constexpr bool rounds_factors(WeightFormat format, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::kAmx && is_quantized(format)) return true;
  return (arithmetic == Arithmetic::kFast || arithmetic == Arithmetic::kAmx) &&
         (format == WeightFormat::kBFloat16 || format == WeightFormat::kRoundedBFloat16);
}
inline bool rounds_factors(const Weight& w) {
  return rounds_factors(w.format, w.arithmetic) &&
         (w.quantized || w.values.scalar_type() != at::kDouble);
}

}  // namespace temper::ops
