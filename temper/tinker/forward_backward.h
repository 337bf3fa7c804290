// Requests' forward passes, or forward and backward passes, in slices between which others may use
// the model. Requests of different adapters share passes over the frozen base
// (train/forward_pass.h) and get the numbers that they would get alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "temper/tinker/adapter.h"
#include "temper/tinker/chunks.h"
#include "temper/tinker/losses.h"
#include "temper/tinker/sliced_pass.h"
#include "temper/train/forward_pass.h"

namespace temper::tinker {

// A request that was checked: data with at least one token and one target each.
struct LossBatch {
  LossSpec loss;
  bool forward_only = false;
  std::vector<std::vector<int32_t>> tokens;  // by datum
  std::vector<ImageSpans> images;            // by datum
  std::vector<Targets> targets;              // by datum
};
struct BatchLimits {
  int64_t vocabulary = 0, most_positions = 0;  // the model's; of one datum
  int64_t most_trained = INT64_MAX;            // tokens of one datum in a backward pass
  int64_t most_cells = int64_t{1} << 24;       // log-probabilities that are answered
  ChunkFormat chunks = {};
};
// Throws DataError for what the model or the loss cannot take. Images are decoded in their pass: a
// broken one fails the request then.
LossBatch check_batch(ForwardBackwardRequest request, const BatchLimits& limits);

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

class ForwardBackward {
 public:
  // pass_tokens: most tokens of a pass; a longer datum has one of its own. The adapter outlives
  // this. It gets the gradients with the last pass, and none of a request that fails.
  ForwardBackward(models::CausalLM& model, TrainedAdapter& adapter, LossBatch batch,
                  int64_t pass_tokens);

  // Makes a pass: the first request's next one, together with the next ones of those others, in
  // order, that fit into its tokens with it; none where the model's adapters do not mix. The
  // requests are of one model, different adapters, and not done. What a request's pass throws is
  // thrown by its done() and reaches no other. Gives why several could not share a pass that each
  // made alone: a fault of the sharing; empty: there was none.
  static std::string step_together(std::span<ForwardBackward* const> requests);
  // Whether the last pass was made. Throws DataError where log-probabilities were not finite, and
  // what the pass threw.
  bool done() const;
  // Whether a pass was begun of which slices are left (SlicedPass): the request's next one is then
  // made alone, and what it holds is large.
  bool in_pass() const { return sliced_ != nullptr; }
  // A pass of this request alone. Gives done().
  bool step();
  // After the last pass: the body of the answer (ForwardBackwardOutput).
  std::string result() const;
  // Whether most of its log-probabilities are of cells of sparse targets that list nothing.
  bool is_sparse() const;

 private:
  // The data of a pass, which do not depend on who shares it.
  struct Piece {
    size_t begin = 0, end = 0, targets = 0, rows = 0;  // rows: positions that have targets
    int64_t tokens = 0;
    bool trains = false;
    bool is_sliced() const { return targets > rows || rows > kRowsAtOnce; }
  };
  // What a piece gave. Nothing else of a request changes before its pass is made.
  struct Made {
    double loss = 0;                     // of all data so far
    std::vector<DatumLogprobs> outputs;  // by datum
    std::vector<at::Tensor> gradients;   // by parameter of the adapter; empty where it trains none
  };
  Piece plan() const;
  static std::vector<ForwardBackward*> sharing(std::span<ForwardBackward* const> requests);
  static std::vector<Made> run(std::span<ForwardBackward* const> requests);
  void guarded(const std::function<void()>& work);
  void add_to(train::ForwardPass& pass) const;
  Made evaluate(std::span<const float> logprobs, std::vector<float>& gradient) const;
  void take(Made made);
  void begin_slices();
  void step_slice();

  models::CausalLM& model_;
  TrainedAdapter& adapter_;
  const LossBatch batch_;
  const int64_t pass_tokens_;
  Piece piece_;                        // that is made now, or was last
  std::vector<at::Tensor> gradients_;  // of the passes so far
  std::exception_ptr error_;
  double loss_ = 0;
  std::vector<DatumLogprobs> outputs_;
  std::vector<int64_t> rows_;  // by datum: its positions that have targets
  // Of a pass in slices; the gradients are held where it trains.
  std::optional<PassGradients> held_;
  std::unique_ptr<SlicedPass> sliced_;
  Made sliced_made_;
};

}  // namespace temper::tinker
