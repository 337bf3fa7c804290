#include "temper/tinker/sliced_pass.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "temper/ops/host.h"

namespace temper::tinker {

SlicedPass::SlicedPass(models::CausalLM& model, train::ForwardPass pass, RowTargets targets,
                       bool trains, Derive derive)
    : model_(model),
      pass_(std::move(pass)),
      targets_(std::move(targets)),
      trains_(trains),
      derive_(std::move(derive)) {
  Part part;
  for (size_t row = 0; row + 1 < targets_.offset.size(); ++row) {
    const size_t mine = targets_.offset[row + 1] - targets_.offset[row],
                 columns = std::max(part.columns, mine), rows = row + 1 - part.begin;
    if (rows > 1 && (rows > kRowsAtOnce || rows * columns > kTargetsAtOnce)) {
      parts_.push_back(part);
      part = {row, row + 1, mine};
    } else {
      part = {part.begin, row + 1, columns};
    }
  }
  parts_.push_back(part);
}

void SlicedPass::run_body() {
  const at::AutoGradMode mode(trains_);
  hidden_ = model_.forward(train::context_of(pass_, {}));
  leaf_ = trains_ ? hidden_.detach().requires_grad_() : hidden_;
}

// Of the part's targets, in order.
at::Tensor SlicedPass::logp_of(const Part& part) const {
  const auto begin = pass_.row_M.begin();
  const std::vector<int64_t> rows(begin + static_cast<ptrdiff_t>(part.begin),
                                  begin + static_cast<ptrdiff_t>(part.end));
  std::vector<int64_t> token(rows.size() * part.columns, -1), place;
  for (size_t row = part.begin; row < part.end; ++row) {
    size_t cell = (row - part.begin) * part.columns;
    for (size_t i = targets_.offset[row]; i < targets_.offset[row + 1]; ++i, ++cell) {
      token[cell] = targets_.token[i];
      place.push_back(static_cast<int64_t>(cell));
    }
  }
  const at::Tensor all = ops::to_host(
      {model_.token_logp(leaf_, rows, token, {.adapter = pass_.adapters[0].adapter}).logp})[0];
  return place.size() == token.size() ? all : all.index_select(0, at::tensor(place));
}

void SlicedPass::go_back(const Part& part, const at::Tensor& logp) const {
  const std::span<const float> mine =
      std::span(gradient_).subspan(first_target(part), static_cast<size_t>(logp.numel()));
  torch::autograd::backward(
      {logp}, {at::tensor(at::ArrayRef<float>(mine.data(), mine.size()), at::kFloat)});
}

bool SlicedPass::step() {
  const size_t slice = next_++, parts = parts_.size();
  if (slice == 0) {
    run_body();
    if (parts > 1) return false;
  }
  // One part alone is computed once: its graph waits for the derivatives.
  const bool is_forward = parts == 1 || slice <= parts;
  const Part& part = parts_[parts == 1 ? 0 : (slice - 1) % parts];
  const at::AutoGradMode mode(trains_ && (parts == 1 || !is_forward));
  const at::Tensor logp = logp_of(part);
  if (is_forward) {
    const at::Tensor values = logp.detach().contiguous();
    logprobs_.insert(logprobs_.end(), values.const_data_ptr<float>(),
                     values.const_data_ptr<float>() + values.numel());
    if (parts > 1 && slice < parts) return false;
    gradient_ = derive_(logprobs_);
    if (!trains_) return true;
    if (parts > 1) return false;
  }
  go_back(part, logp);
  if (parts > 1 && slice < 2 * parts) return false;
  if (hidden_.requires_grad()) torch::autograd::backward({hidden_}, {leaf_.grad()});
  return true;
}

}  // namespace temper::tinker
