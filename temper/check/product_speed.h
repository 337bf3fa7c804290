// What model.arithmetic: integer gains on this machine, measured.
#pragma once

#include <string>

#include "temper/ops/formats.h"

namespace temper::checks {

// How many times as fast as exact products those in integers are, of a matrix in a quantized
// format: for one row of activations, as in decoding one sequence, and for 64. Takes about 0.1 s.
struct ProductSpeed {
  double one_row = 0, many_rows = 0;
};
ProductSpeed integer_speed(ops::WeightFormat format);

// Of the formats that weights are converted to: "int8 1.6 times as fast for one row, 2.3 for 64;
// nf4 ...".
std::string integer_speeds();
// "1.6 times as fast for one row, 2.3 for 64"
std::string text_of(const ProductSpeed& speed);

}  // namespace temper::checks
