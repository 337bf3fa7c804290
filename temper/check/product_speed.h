// What model.arithmetic: integer gains on this machine, measured.
#pragma once

#include <string>

#include "temper/ops/formats.h"

namespace temper::checks {

// How many times as fast the native backend multiplies in integers as exactly: by one row, as a
// sequence is decoded, and by 64. Of a matrix in a quantized format. Takes about 0.1 s.
struct ProductSpeed {
  double one_row = 0, many_rows = 0;
};
ProductSpeed integer_speed(ops::WeightFormat format);

// Of the formats that weights are converted to: "int8 1.6 times as fast by one row, 2.3 by 64; nf4
// ...".
std::string integer_speeds();
// "1.6 times as fast by one row, 2.3 by 64"
std::string text_of(const ProductSpeed& speed);

}  // namespace temper::checks
