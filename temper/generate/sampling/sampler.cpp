#include "temper/generate/sampling/sampler.h"

#include <algorithm>
#include <numeric>

#include "temper/base/exact_math.h"
#include "temper/base/random.h"
#include "temper/generate/likeliest.h"
#include "temper/generate/sampling/logit_rules.h"
#include "temper/ops/logits/token_logp.h"

namespace temper::generate {
namespace {

using Weights = std::vector<float>;
constexpr size_t kFirstCandidates = 64;  // that top-p looks at; doubled until they have the mass

int32_t argmax(const float* x, int64_t count) {
  return static_cast<int32_t>(std::max_element(x, x + count) - x);
}

// Without filters the block sums that the log-sum-exp was made of lead to the block in which the
// quantile u lies, and only that block is looked at. Sums in double, ascending.
int32_t at_quantile(const LogitsRow& row, double u) {
  const int64_t blocks = (row.count + ops::kLogitsBlock - 1) / ops::kLogitsBlock;
  const float max = *std::max_element(row.block_max, row.block_max + blocks);
  std::vector<double> mass(static_cast<size_t>(blocks));
  for (int64_t b = 0; b < blocks; ++b)
    mass[static_cast<size_t>(b)] =
        row.block_sum[b] * exact::quick_exp(static_cast<double>(row.block_max[b]) - max);
  double left = u * std::accumulate(mass.begin(), mass.end(), 0.0);
  int64_t block = 0;
  while (block + 1 < blocks && left >= mass[static_cast<size_t>(block)])
    left -= mass[static_cast<size_t>(block++)];
  while (block > 0 && mass[static_cast<size_t>(block)] == 0)
    --block;  // rounding led past the last that has any
  const int64_t first = block * ops::kLogitsBlock,
                width = std::min(ops::kLogitsBlock, row.count - first);
  float weight[ops::kLogitsBlock];
  ops::exp_shifted(width, row.logits + first, row.block_max[block], weight);
  left /= exact::quick_exp(static_cast<double>(row.block_max[block]) - max);
  int64_t chosen = -1;
  for (int64_t i = 0; i < width; ++i) {
    if (weight[i] == 0) continue;
    chosen = i;
    left -= weight[i];
    if (left < 0) break;
  }
  return static_cast<int32_t>(first + chosen);
}

int32_t at_quantile(const Candidates& c, double u) {
  double left = u * std::accumulate(c.weights.begin(), c.weights.end(), 0.0);
  for (size_t i = 0; i < c.ids.size(); ++i) {
    left -= c.weights[i];
    if (left < 0) return c.ids[i];
  }
  return c.ids.back();
}

// Chooses among all tokens in the order of their ids: without a filter none need be sorted.
int32_t at_quantile(const std::vector<float>& logits, double u) {
  const int64_t count = static_cast<int64_t>(logits.size());
  Weights weight(logits.size());
  ops::exp_shifted(count, logits.data(), *std::max_element(logits.begin(), logits.end()),
                   weight.data());
  double left = u * std::accumulate(weight.begin(), weight.end(), 0.0);
  int32_t chosen = -1;
  for (size_t i = 0; i < weight.size(); ++i) {
    if (weight[i] == 0) continue;
    chosen = static_cast<int32_t>(i);
    left -= weight[i];
    if (left < 0) break;
  }
  return chosen;
}

}  // namespace

Candidates candidates(const SamplingOptions& options, const float* x, int64_t count) {
  const Likelier likelier{x};
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  size_t kept =
      options.top_k > 0 ? std::min(static_cast<size_t>(options.top_k), ids.size()) : ids.size();
  size_t sorted = 0;  // the first so many are in order
  const auto sort_to = [&](size_t n) {
    n = std::min(n, kept);
    if (n <= sorted) return;
    std::partial_sort(ids.begin() + static_cast<int64_t>(sorted),
                      ids.begin() + static_cast<int64_t>(n), ids.end(), likelier);
    sorted = n;
  };
  if (kept < ids.size()) sort_to(kept);
  const float max = x[argmax(x, count)];
  Weights weight(static_cast<size_t>(count));
  ops::exp_shifted(count, x, max, weight.data());
  if (options.top_p < 1) {
    double total = 0;
    for (size_t i = 0; i < kept; ++i) total += weight[static_cast<size_t>(ids[i])];
    double sum = 0;
    size_t n = 0;
    while (n < kept && sum < options.top_p * total) {
      if (n == sorted) sort_to(std::max(kFirstCandidates, 2 * sorted));
      sum += weight[static_cast<size_t>(ids[n++])];
    }
    kept = std::max<size_t>(n, 1);
  }
  ids.resize(kept);
  // The likeliest token weighs 1; what is ruled out weighs 0.
  std::erase_if(ids, [&](int32_t id) {
    const float w = weight[static_cast<size_t>(id)];
    return w == 0 || w < options.min_p;
  });
  if (sorted < ids.size()) std::sort(ids.begin(), ids.end(), likelier);
  Candidates out{std::move(ids), {}};
  for (const int32_t id : out.ids) out.weights.push_back(weight[static_cast<size_t>(id)]);
  return out;
}

double uniform_of(const SamplingOptions& options, const SampleKey& key) {
  return RandomStream(options.seed, RandomPurpose::kSampling, key.index, key.sample)
      .uniform_double(key.position);
}

int32_t choose(const SamplingOptions& options, const SampleKey& key, const LogitsRow& row,
               const SampleContext& context, std::vector<int32_t>* kept) {
  const bool change = options.changes_logits() || !context.banned.empty() || !context.mask.empty();
  const std::vector<float> changed =
      change ? apply_rules(options, row, context) : std::vector<float>();
  const float* x = change ? changed.data() : row.logits;
  if (options.temperature == 0) return argmax(x, row.count);
  const double u = uniform_of(options, key);
  if (options.filters()) {
    Candidates left = candidates(options, x, row.count);
    const int32_t chosen = at_quantile(left, u);
    if (kept) {
      std::sort(left.ids.begin(), left.ids.end());
      *kept = std::move(left.ids);
    }
    return chosen;
  }
  return change ? at_quantile(changed, u) : at_quantile(row, u);
}

}  // namespace temper::generate
