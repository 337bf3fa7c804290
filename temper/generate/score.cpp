#include "temper/generate/score.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "temper/base/error.h"
#include "temper/generate/sampling/batch_sampler.h"
#include "temper/nn/weights/read_rows.h"

namespace temper::generate {

std::vector<size_t> ScoreRequest::scored() const {
  if (only) return *only;
  std::vector<size_t> all;
  for (size_t i = first_scored; i < tokens.size(); ++i) all.push_back(i);
  return all;
}

namespace {

// Scores the rows that have this adapter.
void score_under(models::CausalLM& model, int adapter, const std::vector<ScoreRequest>& rows,
                 double temperature, int64_t top, std::vector<ScoreResult>& results) {
  auto forest = std::make_shared<Forest>();
  std::vector<int64_t> at_row, target, last;
  for (const ScoreRequest& row : rows) {
    if (row.adapter != adapter) continue;
    const std::vector<size_t> scored = row.scored();
    check(scored.empty() || scored.front() >= 1,
          "score: a row's first token has nothing before it");
    const int64_t start = forest->num_tokens();
    forest->add_root(row.tokens, 0, row.rows);
    for (const size_t i : scored) {
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
    logp =
        model.token_logp(hidden, at_row, target, {.temperature = temperature, .adapter = adapter})
            .logp.to(at::kCPU);
    values = logp.const_data_ptr<float>();
    check(std::all_of(values, values + logp.numel(), [](float x) { return std::isfinite(x); }),
          "the model's log-probabilities are not finite: its weights hold NaN or infinity, or "
          "overflow");
  }
  size_t mine = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].adapter != adapter) continue;
    const size_t count = rows[r].scored().size();
    if (count > 0) results[r].logprobs.assign(values, values + count);
    values += count;
    if (top > 0) {
      const ops::Logits next = model.logits(hidden, {last[mine]}, temperature, adapter);
      results[r].next_top = likeliest(next.logits.const_data_ptr<float>(), next.logits.size(1),
                                      next.log_sum_exp.const_data_ptr<float>()[0], top);
    }
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
