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

namespace temper::tinker {
namespace {

std::span<const float> numbers_of(const at::Tensor& x) {
  return {x.const_data_ptr<float>(), static_cast<size_t>(x.numel())};
}
at::Tensor tensor_of(std::span<const float> x) {
  return at::tensor(at::ArrayRef<float>(x.data(), x.size()), at::kFloat);
}

// Of positions with one target each.
void run_pass(models::CausalLM& model, const train::ForwardPass& pass, bool trains,
              const Derive& derive) {
  if (pass.target_M.empty()) {  // sparse targets that list none
    derive({});
    return;
  }
  const at::AutoGradMode mode(trains);
  const at::Tensor logp = train::token_logp(model, pass, {}).logp;
  const at::Tensor values = logp.detach().contiguous();
  const std::vector<float> gradient = derive(numbers_of(values));
  if (trains) torch::autograd::backward({logp}, {tensor_of(gradient)});
}

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
    ImageSpans images = place_chunks(limits.chunks, datum.images, datum.tokens, where);
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
    batch.images.push_back(std::move(images));
    batch.targets.push_back(std::move(targets));
    datum.inputs.clear();
    datum.images.clear();
  }
  return batch;
}

ForwardBackward::ForwardBackward(models::CausalLM& model, TrainedAdapter& adapter, LossBatch batch,
                                 int64_t pass_tokens)
    : model_(model),
      adapter_(adapter),
      batch_(std::move(batch)),
      pass_tokens_(pass_tokens),
      outputs_(batch_.tokens.size()) {
  for (const Targets& targets : batch_.targets) {
    int64_t& rows = rows_.emplace_back(0);
    for (size_t i = 0; i < targets.size(); ++i)
      rows += i == 0 || targets.position[i] != targets.position[i - 1];
  }
}

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
    piece.rows += static_cast<size_t>(rows_[piece.end]);
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
                      targets + piece.targets <= kRowsAtOnce && !piece.is_sliced() &&
                      !first.piece_.is_sliced() && piece.trains == first.piece_.trains;
    if (request != &first && !fits) continue;
    request->piece_ = piece;
    tokens += piece.tokens;
    targets += piece.targets;
    chosen.push_back(request);
  }
  return chosen;
}

std::string ForwardBackward::step_together(std::span<ForwardBackward* const> requests) {
  if (requests[0]->sliced_) {
    requests[0]->step_slice();
    return "";
  }
  const std::vector<ForwardBackward*> chosen = sharing(requests);
  if (requests[0]->piece_.is_sliced()) {
    requests[0]->guarded([&] { requests[0]->begin_slices(); });
    if (!requests[0]->error_) requests[0]->step_slice();
    return "";
  }
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

// Of the planned piece alone.
void ForwardBackward::begin_slices() {
  train::ForwardPass pass;
  RowTargets targets;
  for (size_t d = piece_.begin; d < piece_.end; ++d) {
    const Targets& of = batch_.targets[d];
    std::vector<int64_t> position, first;
    for (size_t i = 0; i < of.size(); ++i) {
      if (i == 0 || of.position[i] != of.position[i - 1]) {
        if (!targets.token.empty()) targets.offset.push_back(targets.token.size());
        position.push_back(of.position[i]);
        first.push_back(of.token[i]);
      }
      targets.token.push_back(of.token[i]);
    }
    pass.add_row(batch_.tokens[d], position, first, adapter_.index(), batch_.images[d]);
  }
  targets.offset.push_back(targets.token.size());
  if (piece_.trains) held_.emplace(adapter_);
  sliced_ = std::make_unique<SlicedPass>(model_, std::move(pass), std::move(targets), piece_.trains,
                                         [this](std::span<const float> logprobs) {
                                           std::vector<float> gradient;
                                           sliced_made_ = evaluate(logprobs, gradient);
                                           return gradient;
                                         });
}

void ForwardBackward::step_slice() {
  guarded([&] {
    if (!sliced_->step()) return;
    Made made = std::move(sliced_made_);
    if (held_) made.gradients = held_->take();
    held_.reset();
    sliced_.reset();
    take(std::move(made));
  });
  if (!error_) return;
  held_.reset();
  sliced_.reset();
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
                 adapter_.index(), batch_.images[d]);
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
      check<DataError>(std::isfinite(x),
                       "the model's log-probabilities are not finite: its weights overflow, or "
                       "hold NaN; go on from saved weights, with a smaller learning rate");
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
  return !sliced_ && piece_.end == batch_.tokens.size();
}

bool ForwardBackward::step() {
  ForwardBackward* const alone[] = {this};
  step_together(alone);
  return done();
}

bool ForwardBackward::is_sparse() const {
  constexpr size_t kCellsOfTarget = 4;
  size_t cells = 0, targets = 0;
  for (const DatumLogprobs& datum : outputs_) cells += datum.values.size();
  for (const Targets& of : batch_.targets) targets += of.size();
  return cells > kCellsOfTarget * targets;
}

std::string ForwardBackward::result() const {
  double targets = 0;
  for (const Targets& t : batch_.targets) targets += static_cast<double>(t.size());
  return write_forward_backward(outputs_, {{"loss:sum", loss_}, {"targets:sum", targets}});
}

}  // namespace temper::tinker
