#include "temper/nn/weights/read_rows.h"

#include <algorithm>

#include "temper/nn/mixed_adapters.h"
#include "temper/ops/layers/embedding.h"

namespace temper::nn {

std::shared_ptr<const std::vector<int64_t>> rows_to_read(std::vector<int64_t> rows,
                                                         int64_t num_tokens) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  if (static_cast<int64_t>(rows.size()) * 8 > num_tokens * 7) return {};
  return std::make_shared<const std::vector<int64_t>>(std::move(rows));
}

ReadRows::ReadRows(const Context& context) : context_(context) {
  if (context.rows)
    context_.adapter_rows = selected_adapter_rows(context.adapter_rows, *context.rows);
  if (!context.rows || !context.dropout) return;
  dropout_ = {.seed = context.dropout->seed, .step = context.dropout->step, .token = {}};
  for (const int64_t row : *context.rows)
    dropout_.token.push_back(context.dropout->token.at(static_cast<size_t>(row)));
  context_.dropout = &dropout_;
}

at::Tensor ReadRows::select(const at::Tensor& x) const {
  return context_.rows ? ops::select_rows(x, *context_.rows) : x;
}

at::Tensor ReadRows::restore(const at::Tensor& x, int64_t num_tokens) const {
  return context_.rows ? ops::place_rows(x, *context_.rows, num_tokens) : x;
}

}  // namespace temper::nn
