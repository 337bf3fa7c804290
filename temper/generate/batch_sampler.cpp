#include "temper/generate/batch_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <map>
#include <numeric>

#include "temper/ops/embedding.h"

namespace temper::generate {
namespace {

double divisor(const SamplingOptions& options) {
  return options.temperature == 0 ? 1 : options.temperature;
}

Choice choose_of(const SampledRow& row, const LogitsRow& logits, float log_sum) {
  SampleContext context = row.context;
  if (row.matcher) context.mask = row.matcher->mask();
  const int32_t token = choose(*row.options, row.key, logits, context);
  if (row.matcher) row.matcher->accept(token);
  Choice choice{token, logits.logits[token] - log_sum, {}};
  if (row.top_logprobs > 0)
    choice.top = likeliest(logits.logits, logits.count, log_sum, row.top_logprobs);
  return choice;
}

// Whether a row is worth a thread of its own.
bool is_slow(const SampledRow* row) {
  return row->options->filters() || row->options->changes_logits() || row->matcher ||
         row->top_logprobs > 0;
}

// Rows of one temperature and adapter: chosen[i] is row i's.
void sample_at(models::CausalLM& model, double temperature, int adapter, const at::Tensor& hidden,
               std::span<const SampledRow* const> rows, std::span<Choice> chosen) {
  const ops::Logits next = model.logits(hidden, temperature, adapter);
  const float *logits = next.logits.const_data_ptr<float>(),
              *log_sum = next.log_sum_exp.const_data_ptr<float>(),
              *block_max = next.block_max.const_data_ptr<float>(),
              *block_sum = next.block_sum.const_data_ptr<float>();
  const int64_t vocabulary = next.logits.size(1), blocks = next.block_max.size(1);
  const bool slow = std::any_of(rows.begin(), rows.end(), is_slow);
  std::exception_ptr failure;  // none may leave the parallel region
#pragma omp parallel for schedule(static) if (rows.size() > 4 || slow)
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t r = static_cast<int64_t>(i);
    try {
      chosen[i] = choose_of(
          *rows[i],
          {logits + r * vocabulary, vocabulary, block_max + r * blocks, block_sum + r * blocks},
          log_sum[r]);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

TopLogprobs likeliest(const float* logits, int64_t count, float log_sum, int64_t k) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + std::min(k, count);
  std::partial_sort(order.begin(), middle, order.end(), [logits](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  TopLogprobs out;
  for (auto id = order.begin(); id != middle; ++id) out.emplace_back(*id, logits[*id] - log_sum);
  return out;
}

std::vector<Choice> sample(models::CausalLM& model, const at::Tensor& hidden,
                           std::span<const SampledRow> rows) {
  std::map<std::pair<int, double>, std::vector<int64_t>> by_head;
  for (size_t i = 0; i < rows.size(); ++i)
    by_head[{rows[i].adapter, divisor(*rows[i].options)}].push_back(static_cast<int64_t>(i));
  std::vector<Choice> all(rows.size());
  for (const auto& [head, indices] : by_head) {
    std::vector<const SampledRow*> some;
    for (const int64_t i : indices) some.push_back(&rows[static_cast<size_t>(i)]);
    std::vector<Choice> chosen(some.size());
    sample_at(model, head.second, head.first,
              some.size() == rows.size() ? hidden : ops::select_rows(hidden, indices), some,
              chosen);
    for (size_t i = 0; i < some.size(); ++i)
      all[static_cast<size_t>(indices[i])] = std::move(chosen[i]);
  }
  return all;
}

}  // namespace temper::generate
