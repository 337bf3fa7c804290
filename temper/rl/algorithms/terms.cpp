#include "temper/rl/algorithms/terms.h"

#include <ATen/ATen.h>

#include <numeric>

namespace temper::rl {

std::vector<double> aggregate(Aggregation how, std::span<const int64_t> length_C,
                              int64_t max_new_tokens) {
  const double completions = static_cast<double>(length_C.size());
  const double tokens =
      static_cast<double>(std::accumulate(length_C.begin(), length_C.end(), int64_t{0}));
  std::vector<double> weight_C;
  for (const int64_t length : length_C) {
    switch (how) {
      case Aggregation::kTokenMean:
        weight_C.push_back(1 / tokens);
        break;
      case Aggregation::kSeqMeanTokenMean:
        weight_C.push_back(1 / (completions * static_cast<double>(length)));
        break;
      case Aggregation::kSeqMeanTokenSum:
        weight_C.push_back(1 / completions);
        break;
      case Aggregation::kSeqMeanTokenSumNorm:
        weight_C.push_back(1 / (completions * static_cast<double>(max_new_tokens)));
        break;
    }
  }
  return weight_C;
}

at::Tensor TokenBatch::completion_means(const at::Tensor& x_M) const {
  const at::Tensor constant_M = x_M.detach();
  at::Tensor mean_M = at::empty_like(constant_M);
  for (size_t c = 0; c + 1 < cu_length_C1.size(); ++c) {
    const int64_t start = cu_length_C1[c], length = cu_length_C1[c + 1] - start;
    mean_M.narrow(0, start, length)
        .fill_(train::ordered_sum(constant_M.narrow(0, start, length)) /
               static_cast<double>(length));
  }
  return mean_M;
}

train::Term policy_term(const at::Tensor& value_M, const TokenBatch& b) {
  return {.name = "policy",
          .value = b.correction_M.defined() ? value_M * b.correction_M : value_M,
          .weight = b.weight_M};
}

}  // namespace temper::rl
