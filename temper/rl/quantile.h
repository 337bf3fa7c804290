// Quantiles of a few numbers.
#pragma once

#include <vector>

namespace temper::rl {

// The q-quantile (0 to 1) of at least one number, interpolated linearly between the two nearest in
// float32, as torch.quantile and numpy.quantile do. NaN where one is NaN.
float interpolated_quantile(std::vector<float> values, double q);

}  // namespace temper::rl
