#include "temper/tinker/forward_backward.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>

#include "temper/base/error.h"
#include "temper/nn/mixed_adapters.h"
#include "temper/ops/host.h"

namespace temper::tinker {
namespace {

// Targets whose rows of hidden states are held at once: with many targets a position that is far
// more than the pass has tokens.
constexpr size_t kTargetsAtOnce = size_t{1} << 14;

// The loss's derivatives by log-probabilities, of all targets of a pass.
using Derive = std::function<std::vector<float>(std::span<const float> logprobs)>;

std::span<const float> numbers_of(const at::Tensor& x) {
  return {x.const_data_ptr<float>(), static_cast<size_t>(x.numel())};
}
at::Tensor tensor_of(std::span<const float> x) {
  return at::tensor(at::ArrayRef<float>(x.data(), x.size()), at::kFloat);
}

// The derivatives need all log-probabilities; each part of them is then computed once more. The
// pass is one adapter's.
void run_in_parts(models::CausalLM& model, const train::ForwardPass& pass, bool trains,
                  const Derive& derive) {
  const at::Tensor hidden = model.forward(train::context_of(pass, {}));
  const at::Tensor leaf = trains ? hidden.detach().requires_grad_() : hidden;
  const size_t targets = pass.target_M.size();
  const auto logp_from = [&](size_t first) {
    const auto part = [&](const std::vector<int64_t>& all) {
      const auto end = std::min(first + kTargetsAtOnce, targets);
      return std::vector<int64_t>(all.begin() + static_cast<ptrdiff_t>(first),
                                  all.begin() + static_cast<ptrdiff_t>(end));
    };
    return ops::to_host({model
                             .token_logp(leaf, part(pass.row_M), part(pass.target_M),
                                         {.adapter = pass.adapters[0].adapter})
                             .logp})[0];
  };
  std::vector<float> all;
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < targets; i += kTargetsAtOnce) {
      const at::Tensor logp = logp_from(i);
      const std::span<const float> part = numbers_of(logp);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  const std::vector<float> gradient = derive(all);
  if (!trains) return;
  for (size_t i = 0; i < targets; i += kTargetsAtOnce) {
    const at::Tensor logp = logp_from(i);
    const auto count = static_cast<size_t>(logp.numel());
    torch::autograd::backward({logp}, {tensor_of(std::span(gradient).subspan(i, count))});
  }
  if (hidden.requires_grad()) torch::autograd::backward({hidden}, {leaf.grad()});
}

void run_pass(models::CausalLM& model, const train::ForwardPass& pass, bool trains,
              const Derive& derive) {
  if (pass.target_M.empty()) {  // sparse targets that list none
    derive({});
    return;
  }
  const at::AutoGradMode mode(trains);
  if (pass.target_M.size() > kTargetsAtOnce) return run_in_parts(model, pass, trains, derive);
  const at::Tensor logp = train::token_logp(model, pass, {}).logp;
  const at::Tensor values = logp.detach().contiguous();
  const std::vector<float> gradient = derive(numbers_of(values));
  if (trains) torch::autograd::backward({logp}, {tensor_of(gradient)});
}

// An adapter whose gradients of earlier requests are out of the way of a pass's.
class PassGradients {
 public:
  explicit PassGradients(TrainedAdapter& adapter)
      : adapter_(adapter), earlier_(adapter.take_gradients()) {}
  ~PassGradients() { adapter_.put_gradients(earlier_); }
  PassGradients(const PassGradients&) = delete;
  PassGradients& operator=(const PassGradients&) = delete;
  std::vector<at::Tensor> take() { return adapter_.take_gradients(); }

 private:
  TrainedAdapter& adapter_;
  const std::vector<at::Tensor> earlier_;
};

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

ForwardBackward::ForwardBackward(models::CausalLM& model, TrainedAdapter& adapter, LossBatch batch,
                                 int64_t pass_tokens)
    : model_(model),
      adapter_(adapter),
      batch_(std::move(batch)),
      pass_tokens_(pass_tokens),
      outputs_(batch_.tokens.size()) {}

// The data after those of the last piece.
ForwardBackward::Piece ForwardBackward::plan() const {
  Piece piece;
  piece.begin = piece.end = piece_.end;
  for (; piece.end < batch_.tokens.size(); ++piece.end) {
    const auto length = static_cast<int64_t>(batch_.tokens[piece.end].size());
    if (piece.tokens > 0 && piece.tokens + length > pass_tokens_) break;
    const Targets& targets = batch_.targets[piece.end];
    piece.tokens += length;
    piece.targets += targets.size();
    piece.trains = piece.trains || (!batch_.forward_only && targets.trains(batch_.loss));
  }
  return piece;
}

// Whose next pieces make the next pass; they are planned.
std::vector<ForwardBackward*> ForwardBackward::sharing(std::span<ForwardBackward* const> requests) {
  ForwardBackward& first = *requests[0];
  const bool mixes = requests.size() > 1 && nn::mixes_adapters(first.model_);
  std::vector<ForwardBackward*> chosen;
  int64_t tokens = 0;
  size_t targets = 0;
  for (ForwardBackward* request : requests) {
    const Piece piece = request->plan();
    const bool fits = mixes && tokens + piece.tokens <= first.pass_tokens_ &&
                      targets + piece.targets <= kTargetsAtOnce &&
                      piece.trains == first.piece_.trains;
    if (request != &first && !fits) continue;
    request->piece_ = piece;
    tokens += piece.tokens;
    targets += piece.targets;
    chosen.push_back(request);
  }
  return chosen;
}

std::string ForwardBackward::step_together(std::span<ForwardBackward* const> requests) {
  const std::vector<ForwardBackward*> chosen = sharing(requests);
  std::string failure;
  if (chosen.size() > 1) {
    std::vector<Made> made;
    try {
      made = run(chosen);
    } catch (const std::exception& e) {  // whose fault it is shows when each goes alone
      failure = e.what();
    }
    for (size_t i = 0; i < made.size(); ++i)
      chosen[i]->guarded([&] { chosen[i]->take(std::move(made[i])); });
    if (!made.empty()) return {};
  }
  for (ForwardBackward* request : chosen) {
    request->guarded([&] {
      ForwardBackward* const alone[] = {request};
      request->take(std::move(run(alone)[0]));
    });
    if (request->error_) failure.clear();
  }
  return failure;
}

// What goes wrong is the request's.
void ForwardBackward::guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception&) {
    error_ = std::current_exception();
  }
}

// The planned pieces in one pass.
std::vector<ForwardBackward::Made> ForwardBackward::run(
    std::span<ForwardBackward* const> requests) {
  const bool trains = requests[0]->piece_.trains;
  train::ForwardPass pass;
  std::deque<PassGradients> gradients;
  for (ForwardBackward* request : requests) {
    request->add_to(pass);
    if (trains) gradients.emplace_back(request->adapter_);
  }
  std::vector<Made> made;
  run_pass(requests[0]->model_, pass, trains, [&](std::span<const float> logprobs) {
    std::vector<float> gradient;
    for (ForwardBackward* request : requests)
      made.push_back(request->evaluate(logprobs.subspan(gradient.size()), gradient));
    return gradient;
  });
  for (size_t i = 0; i < gradients.size(); ++i) made[i].gradients = gradients[i].take();
  return made;
}

void ForwardBackward::add_to(train::ForwardPass& pass) const {
  for (size_t d = piece_.begin; d < piece_.end; ++d)
    pass.add_row(batch_.tokens[d], batch_.targets[d].position, batch_.targets[d].token,
                 adapter_.index());
}

// Of the piece's targets, whose log-probabilities `logprobs` begins with; adds the loss's
// derivatives by them.
ForwardBackward::Made ForwardBackward::evaluate(std::span<const float> logprobs,
                                                std::vector<float>& gradient) const {
  Made found;
  found.loss = loss_;
  for (size_t d = piece_.begin; d < piece_.end; ++d) {
    const Targets& targets = batch_.targets[d];
    const std::span<const float> mine = logprobs.first(targets.size());
    logprobs = logprobs.subspan(targets.size());
    for (const float x : mine)
      check(std::isfinite(x),
            "the model's log-probabilities are not finite: its weights overflow, or hold NaN");
    const LossValue value = loss_of(batch_.loss, targets, mine);
    found.loss += value.loss;
    gradient.insert(gradient.end(), value.gradient.begin(), value.gradient.end());
    DatumLogprobs& out = found.outputs.emplace_back();
    out.columns = targets.columns;
    out.values.assign(
        static_cast<size_t>(targets.positions * std::max<int64_t>(targets.columns, 1)), 0);
    for (size_t i = 0; i < targets.size(); ++i) out.values[targets.cell[i]] = mine[i];
  }
  return found;
}

// After the last piece the adapter gets the gradients.
void ForwardBackward::take(Made made) {
  loss_ = made.loss;
  std::ranges::move(made.outputs, outputs_.begin() + static_cast<ptrdiff_t>(piece_.begin));
  if (gradients_.empty()) gradients_.resize(made.gradients.size());
  for (size_t i = 0; i < made.gradients.size(); ++i)
    if (!gradients_[i].defined())
      gradients_[i] = made.gradients[i];
    else if (made.gradients[i].defined())
      gradients_[i] += made.gradients[i];
  if (done()) adapter_.add_gradients(gradients_);
}

bool ForwardBackward::done() const {
  if (error_) std::rethrow_exception(error_);
  return piece_.end == batch_.tokens.size();
}

bool ForwardBackward::step() {
  ForwardBackward* const alone[] = {this};
  step_together(alone);
  return done();
}

std::string ForwardBackward::result() const {
  double targets = 0;
  for (const Targets& t : batch_.targets) targets += static_cast<double>(t.size());
  return write_forward_backward(outputs_, {{"loss:sum", loss_}, {"targets:sum", targets}});
}

}  // namespace temper::tinker
