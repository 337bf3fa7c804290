#include "temper/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "temper/base/random.h"

namespace temper::generate {
namespace {
int32_t likeliest(const float* x, int64_t count) {
  return static_cast<int32_t>(std::max_element(x, x + count) - x);
}

// The inverse of the cumulative distribution at u, over tokens in the given order; sums in double, ascending.
int32_t at_quantile(const std::vector<int32_t>& ids, const std::vector<double>& weight, double u) {
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    sum += weight[i];
    if (u * total < sum) return ids[i];
  }
  return ids.back();
}
}  // namespace

int32_t choose(const SamplingOptions& options, const SampleKey& key, const float* x, int64_t count) {
  if (options.temperature == 0) return likeliest(x, count);
  const double u = RandomStream(options.seed, RandomPurpose::kSampling, key.index, key.sample).uniform_double(key.position);
  const float max = x[likeliest(x, count)];
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  const bool sorted = options.top_k > 0 || options.top_p < 1;
  const auto likelier = [x](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; };
  if (options.top_k > 0 && options.top_k < count) {
    std::partial_sort(ids.begin(), ids.begin() + options.top_k, ids.end(), likelier);
    ids.resize(static_cast<size_t>(options.top_k));
  } else if (sorted) {
    std::sort(ids.begin(), ids.end(), likelier);
  }
  std::vector<double> weight(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) weight[i] = std::exp(static_cast<double>(x[ids[i]]) - max);
  if (options.top_p < 1) {
    const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
    double sum = 0;
    size_t keep = 0;
    while (keep < weight.size() && sum < options.top_p * total) sum += weight[keep++];
    keep = std::max<size_t>(keep, 1);
    ids.resize(keep);
    weight.resize(keep);
  }
  if (options.min_p > 0)  // the likeliest token weighs 1
    for (size_t i = 0; i < weight.size(); ++i)
      if (weight[i] < options.min_p) weight[i] = 0;
  return at_quantile(ids, weight, u);
}

}  // namespace temper::generate
