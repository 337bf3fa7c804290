#include "temper/generate/score.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "temper/base/error.h"
#include "temper/nn/read_rows.h"

namespace temper::generate {

namespace {

// The likeliest tokens after a row of hidden states, [1, H].
std::vector<std::pair<int32_t, float>> likeliest(const ops::Logits& next, int64_t top) {
  const int64_t vocabulary = next.logits.size(1);
  const float* x = next.logits.const_data_ptr<float>();
  const float log_sum = next.log_sum_exp.const_data_ptr<float>()[0];
  std::vector<int32_t> order(static_cast<size_t>(vocabulary));
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + std::min<int64_t>(top, vocabulary);
  std::partial_sort(order.begin(), middle, order.end(),
                    [x](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  std::vector<std::pair<int32_t, float>> out;
  for (auto id = order.begin(); id != middle; ++id) out.emplace_back(*id, x[*id] - log_sum);
  return out;
}

// Those of `rows` that have this adapter.
void score_under(models::CausalLM& model, int adapter, const std::vector<ScoreRequest>& rows,
                 double temperature, int64_t top, std::vector<ScoreResult>& results) {
  auto forest = std::make_shared<Forest>();
  std::vector<int64_t> at_row, target, last;
  for (const ScoreRequest& row : rows) {
    if (row.adapter != adapter) continue;
    check(row.first_scored >= 1, "score: a row's first token has nothing before it");
    const int64_t start = forest->num_tokens();
    forest->add_root(row.tokens);
    for (size_t i = row.first_scored; i < row.tokens.size(); ++i) {
      at_row.push_back(start + static_cast<int64_t>(i) - 1);
      target.push_back(row.tokens[i]);
    }
    last.push_back(forest->num_tokens() - 1);
  }
  std::vector<int64_t> read = at_row;
  if (top > 0) read.insert(read.end(), last.begin(), last.end());
  const at::Tensor hidden =
      model.forward({.forest = forest,
                     .adapter = adapter,
                     .rows = nn::rows_to_read(std::move(read), forest->num_tokens())});
  const float* values = nullptr;
  at::Tensor logp;
  if (!target.empty()) {
    logp = model.token_logp(hidden, at_row, target, temperature, false, false, adapter).logp;
    values = logp.const_data_ptr<float>();
    check(std::all_of(values, values + logp.numel(), [](float x) { return std::isfinite(x); }),
          "the model's log-probabilities are not finite: its weights hold NaN or infinity, or "
          "overflow");
  }
  size_t mine = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].adapter != adapter) continue;
    const size_t count = rows[r].tokens.size() > rows[r].first_scored
                             ? rows[r].tokens.size() - rows[r].first_scored
                             : 0;
    if (count > 0) results[r].logprobs.assign(values, values + count);
    values += count;
    if (top > 0)
      results[r].next_top =
          likeliest(model.logits(hidden, {last[mine]}, temperature, adapter), top);
    ++mine;
  }
}

}  // namespace

std::vector<ScoreResult> score(models::CausalLM& model, const std::vector<ScoreRequest>& rows,
                               double temperature, int64_t top) {
  const at::NoGradGuard no_grad;
  std::set<int> adapters;
  for (const ScoreRequest& row : rows) adapters.insert(row.adapter);
  std::vector<ScoreResult> results(rows.size());
  for (const int adapter : adapters) score_under(model, adapter, rows, temperature, top, results);
  return results;
}

}  // namespace temper::generate
