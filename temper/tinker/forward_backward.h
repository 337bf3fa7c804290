// A request's forward pass, or forward and backward pass, in slices between which others may use
// the model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "temper/tinker/adapter.h"
#include "temper/tinker/losses.h"

namespace temper::tinker {

// A request that was checked: data with at least one token and one target each.
struct LossBatch {
  LossSpec loss;
  bool forward_only = false;
  std::vector<std::vector<int32_t>> tokens;  // by datum
  std::vector<Targets> targets;              // by datum
};
struct BatchLimits {
  int64_t vocabulary = 0, most_positions = 0;  // the model's; of one datum
  int64_t most_trained = INT64_MAX;            // tokens of one datum in a backward pass
  int64_t most_cells = int64_t{1} << 24;       // log-probabilities that are answered
};
// Throws DataError for what the model or the loss cannot take.
LossBatch check_batch(ForwardBackwardRequest request, const BatchLimits& limits);

class ForwardBackward {
 public:
  // pass_tokens: most tokens of a pass; a longer datum has one of its own. The adapter outlives
  // this.
  ForwardBackward(models::CausalLM& model, TrainedAdapter& adapter, LossBatch batch,
                  int64_t pass_tokens);
  // Gives the adapter the gradients that it had before, unless all passes were made.
  ~ForwardBackward();
  ForwardBackward(const ForwardBackward&) = delete;
  ForwardBackward& operator=(const ForwardBackward&) = delete;

  // Makes the next pass; true: it was the last one, and the gradients are added to the adapter's.
  // Throws RunError where log-probabilities are not finite.
  bool step();
  // After the last pass: the body of the answer (ForwardBackwardOutput).
  std::string result() const;

 private:
  struct Pass;
  Pass plan() const;
  std::vector<float> logprobs(const Pass& pass, const at::Tensor& hidden, size_t first,
                              size_t count, at::Tensor* differentiable) const;
  void run(const Pass& pass);
  void take(const Pass& pass, const std::vector<float>& logprobs, std::vector<float>& gradient);

  models::CausalLM& model_;
  TrainedAdapter& adapter_;
  const LossBatch batch_;
  const int64_t pass_tokens_;
  size_t next_ = 0;                  // datum
  std::vector<at::Tensor> earlier_;  // gradients of earlier requests
  bool done_ = false;
  double loss_ = 0;
  std::vector<DatumLogprobs> outputs_;
};

}  // namespace temper::tinker
