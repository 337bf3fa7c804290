#include "temper/generate/score.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "temper/base/error.h"

namespace temper::generate {

std::vector<ScoreResult> score(models::CausalLM& model, const std::vector<ScoreRequest>& rows,
                               double temperature, int64_t top) {
  const at::NoGradGuard no_grad;
  auto forest = std::make_shared<Forest>();
  std::vector<int64_t> at_row, target, last;
  for (const ScoreRequest& row : rows) {
    check(row.first_scored >= 1, "score: a row's first token has nothing before it");
    const int64_t start = forest->num_tokens();
    forest->add_root(row.tokens);
    for (size_t i = row.first_scored; i < row.tokens.size(); ++i) {
      at_row.push_back(start + static_cast<int64_t>(i) - 1);
      target.push_back(row.tokens[i]);
    }
    last.push_back(forest->num_tokens() - 1);
  }
  const at::Tensor hidden = model.forward({.forest = forest});
  std::vector<ScoreResult> results(rows.size());
  if (!target.empty()) {
    const at::Tensor logp = model.token_logp(hidden, at_row, target, temperature).logp;
    const float* values = logp.const_data_ptr<float>();
    check(std::all_of(values, values + logp.numel(), [](float x) { return std::isfinite(x); }),
          "the model's log-probabilities are not finite: its weights hold NaN or infinity, or "
          "overflow");
    for (size_t r = 0; r < rows.size(); ++r) {
      const size_t count = rows[r].tokens.size() > rows[r].first_scored
                               ? rows[r].tokens.size() - rows[r].first_scored
                               : 0;
      results[r].logprobs.assign(values, values + count);
      values += count;
    }
  }
  if (top == 0) return results;
  for (size_t r = 0; r < rows.size(); ++r) {
    const ops::Logits next = model.logits(hidden, {last[r]}, temperature);
    const float* x = next.logits.const_data_ptr<float>();
    const float log_sum = next.log_sum_exp.const_data_ptr<float>()[0];
    std::vector<int32_t> order(static_cast<size_t>(model.vocab_size));
    std::iota(order.begin(), order.end(), 0);
    const auto middle = order.begin() + std::min<int64_t>(top, model.vocab_size);
    std::partial_sort(order.begin(), middle, order.end(),
                      [x](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
    for (auto id = order.begin(); id != middle; ++id)
      results[r].next_top.emplace_back(*id, x[*id] - log_sum);
  }
  return results;
}

}  // namespace temper::generate
