#include "temper/generate/batch_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "temper/ops/embedding.h"

namespace temper::generate {
namespace {

double divisor(const SamplingOptions& options) {
  return options.temperature == 0 ? 1 : options.temperature;
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
  const bool filters = std::any_of(rows.begin(), rows.end(),
                                   [](const SampledRow* row) { return row->options->filters(); });
#pragma omp parallel for schedule(static) if (rows.size() > 4 || filters)
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t r = static_cast<int64_t>(i);
    const SampledRow& row = *rows[i];
    const LogitsRow of_row{logits + r * vocabulary, vocabulary, block_max + r * blocks,
                           block_sum + r * blocks};
    const int32_t token = choose(*row.options, row.key, of_row, row.prompt, row.completion);
    chosen[i] = {token, of_row.logits[token] - log_sum[r]};
  }
}

}  // namespace

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
    for (size_t i = 0; i < some.size(); ++i) all[static_cast<size_t>(indices[i])] = chosen[i];
  }
  return all;
}

}  // namespace temper::generate
