#include "temper/tinker/forward_backward.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/nn/read_rows.h"
#include "temper/ops/host.h"

namespace temper::tinker {
namespace {

// Targets whose rows of hidden states are held at once: with many targets a position that is far
// more than the pass has tokens.
constexpr size_t kTargetsAtOnce = size_t{1} << 14;

}  // namespace

LossBatch check_batch(ForwardBackwardRequest request, const BatchLimits& limits) {
  LossBatch batch;
  batch.loss = read_loss(request.loss_fn, request.config);
  batch.forward_only = request.forward_only;
  check<DataError>(!request.data.empty(), "data: found none, expected at least one datum");
  int64_t cells = 0;
  for (size_t d = 0; d < request.data.size(); ++d) {
    WireDatum& datum = request.data[d];
    const std::string where = str("data[", d, "]");
    const int64_t length = static_cast<int64_t>(datum.tokens.size());
    check<DataError>(length >= 1 && length <= limits.most_positions, where, ": model_input has ",
                     length, " tokens, expected 1 to ", limits.most_positions);
    check<DataError>(batch.forward_only || length <= limits.most_trained, where, ": ", length,
                     " tokens are more than this machine has memory for in a backward pass; the "
                     "limit is ",
                     limits.most_trained);
    for (const int32_t token : datum.tokens)
      check<DataError>(token >= 0 && token < limits.vocabulary, where, ": token id ", token,
                       " is outside the model's vocabulary of ", limits.vocabulary);
    Targets targets = read_targets(batch.loss, datum, limits.vocabulary, where);
    cells += targets.positions * std::max<int64_t>(targets.columns, 1);
    check<DataError>(cells <= limits.most_cells, "data: more than ", limits.most_cells,
                     " log-probabilities would be answered; send fewer data in a request");
    batch.tokens.push_back(std::move(datum.tokens));
    batch.targets.push_back(std::move(targets));
    datum.inputs.clear();
  }
  return batch;
}

// Consecutive data, and their targets one after the other.
struct ForwardBackward::Pass {
  size_t begin = 0, end = 0;  // data
  std::shared_ptr<Forest> forest = std::make_shared<Forest>();
  std::vector<int64_t> row, token;  // of each target
};

ForwardBackward::ForwardBackward(models::CausalLM& model, TrainedAdapter& adapter, LossBatch batch,
                                 int64_t pass_tokens)
    : model_(model),
      adapter_(adapter),
      batch_(std::move(batch)),
      pass_tokens_(pass_tokens),
      outputs_(batch_.tokens.size()) {
  if (!batch_.forward_only) earlier_ = adapter_.take_gradients();
}

ForwardBackward::~ForwardBackward() {
  if (!done_ && !batch_.forward_only) adapter_.put_gradients(earlier_);
}

ForwardBackward::Pass ForwardBackward::plan() const {
  Pass pass;
  pass.begin = pass.end = next_;
  while (pass.end < batch_.tokens.size()) {
    const std::vector<int32_t>& tokens = batch_.tokens[pass.end];
    const int64_t start = pass.forest->num_tokens();
    if (start > 0 && start + static_cast<int64_t>(tokens.size()) > pass_tokens_) break;
    pass.forest->add_root(tokens);
    const Targets& targets = batch_.targets[pass.end++];
    for (size_t i = 0; i < targets.size(); ++i) {
      pass.row.push_back(start + targets.position[i]);
      pass.token.push_back(targets.token[i]);
    }
  }
  return pass;
}

// Of targets [first, first + count) of the pass. differentiable: gets the tensor of them.
std::vector<float> ForwardBackward::logprobs(const Pass& pass, const at::Tensor& hidden,
                                             size_t first, size_t count,
                                             at::Tensor* differentiable) const {
  const auto part = [&](const std::vector<int64_t>& all) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(first);
    return std::vector<int64_t>(begin, begin + static_cast<ptrdiff_t>(count));
  };
  const at::Tensor logp = ops::to_host(
      {model_
           .token_logp(hidden, part(pass.row), part(pass.token), 1, false, false, adapter_.index())
           .logp})[0];
  if (differentiable) *differentiable = logp;
  const at::Tensor values = logp.detach().contiguous();
  const float* const begin = values.const_data_ptr<float>();
  return {begin, begin + values.numel()};
}

// Notes the pass's log-probabilities, and gives the loss's derivatives by them.
void ForwardBackward::take(const Pass& pass, const std::vector<float>& logprobs,
                           std::vector<float>& gradient) {
  size_t first = 0;
  for (size_t d = pass.begin; d < pass.end; ++d) {
    const Targets& targets = batch_.targets[d];
    const std::span<const float> mine = std::span(logprobs).subspan(first, targets.size());
    for (const float x : mine)
      check(std::isfinite(x),
            "the model's log-probabilities are not finite: its weights overflow, or hold NaN");
    const LossValue value = loss_of(batch_.loss, targets, mine);
    loss_ += value.loss;
    gradient.insert(gradient.end(), value.gradient.begin(), value.gradient.end());
    DatumLogprobs& out = outputs_[d];
    out.columns = targets.columns;
    out.values.assign(
        static_cast<size_t>(targets.positions * std::max<int64_t>(targets.columns, 1)), 0);
    for (size_t i = 0; i < targets.size(); ++i) out.values[targets.cell[i]] = mine[i];
    first += targets.size();
  }
}

void ForwardBackward::run(const Pass& pass) {
  const bool trains = !batch_.forward_only &&
                      std::any_of(batch_.targets.begin() + static_cast<ptrdiff_t>(pass.begin),
                                  batch_.targets.begin() + static_cast<ptrdiff_t>(pass.end),
                                  [](const Targets& t) { return t.trains(); });
  std::vector<float> all, gradient;
  if (pass.token.empty()) return take(pass, all, gradient);  // sparse targets that list none
  const at::AutoGradMode mode(trains);
  const at::Tensor hidden =
      model_.forward({.forest = pass.forest,
                      .adapter = adapter_.index(),
                      .rows = nn::rows_to_read(pass.row, pass.forest->num_tokens())});
  const auto gradient_of = [&](size_t first, size_t count) {
    return at::tensor(at::ArrayRef<float>(gradient.data() + first, count), at::kFloat);
  };
  const size_t targets = pass.token.size();
  if (!trains || targets <= kTargetsAtOnce) {
    at::Tensor logp;
    if (targets <= kTargetsAtOnce) {
      all = logprobs(pass, hidden, 0, targets, &logp);
    } else {
      for (size_t i = 0; i < targets; i += kTargetsAtOnce) {
        const auto more = logprobs(pass, hidden, i, std::min(kTargetsAtOnce, targets - i), nullptr);
        all.insert(all.end(), more.begin(), more.end());
      }
    }
    take(pass, all, gradient);
    if (trains) torch::autograd::backward({logp}, {gradient_of(0, targets)});
    return;
  }
  // The derivatives need all log-probabilities; each part of them is then computed once more.
  at::Tensor leaf = hidden.detach().requires_grad_();
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < targets; i += kTargetsAtOnce) {
      const auto more = logprobs(pass, leaf, i, std::min(kTargetsAtOnce, targets - i), nullptr);
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  take(pass, all, gradient);
  for (size_t i = 0; i < targets; i += kTargetsAtOnce) {
    const size_t count = std::min(kTargetsAtOnce, targets - i);
    at::Tensor logp;
    logprobs(pass, leaf, i, count, &logp);
    torch::autograd::backward({logp}, {gradient_of(i, count)});
  }
  if (hidden.requires_grad()) torch::autograd::backward({hidden}, {leaf.grad()});
}

bool ForwardBackward::step() {
  const Pass pass = plan();
  run(pass);
  next_ = pass.end;
  if (next_ < batch_.tokens.size()) return false;
  done_ = true;
  if (!batch_.forward_only) {
    std::vector<at::Tensor> mine = adapter_.take_gradients();
    adapter_.put_gradients(earlier_);
    adapter_.add_gradients(mine);
  }
  return true;
}

std::string ForwardBackward::result() const {
  double targets = 0;
  for (const Targets& t : batch_.targets) targets += static_cast<double>(t.size());
  return write_forward_backward(outputs_, {{"loss:sum", loss_}, {"targets:sum", targets}});
}

}  // namespace temper::tinker
