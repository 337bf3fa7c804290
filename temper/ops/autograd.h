// Differentiable functions without a torch::autograd::Function class for each: a function computes
// its outputs and passes a lambda that computes the gradients of its inputs.
//
//   at::Tensor scaled(const at::Tensor& x, const at::Tensor& by) {  // x * by
//     Recording call({x, by});
//     call.reads({x, by});
//     return call.output(x * by, [=](const Gradients& d) -> Tensors {
//       return {d[0] * by, d.wanted(1) ? d[0] * x : at::Tensor()};
//     });
//   }
//
// What the lambda captures, including the function's results, stays in memory until the backward
// pass has run it or the graph is destroyed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace temper::ops {

using Tensors = std::vector<at::Tensor>;

// A gradient that is a sum over rows, with which calls over further rows go on.
struct RowSum {
  at::Tensor sum;  // in the form in which it is summed; undefined before the first rows
  // The gradient that the sum stands for; empty: it is the sum.
  std::function<at::Tensor(const at::Tensor& sum)> finish = {};
};

// Gradients of tensors, each summed over the rows of several calls in the order of one call over
// all of them, so that it has that call's bits. Calls that are recorded on this thread while one of
// these lives, and whose input a tensor is, go on with its sum in their backward pass and give no
// gradient of it. A call begins at a row that is a multiple of kRowSumBlock among all.
class RowSums {
 public:
  explicit RowSums(Tensors of);
  ~RowSums();
  RowSums(const RowSums&) = delete;
  RowSums& operator=(const RowSums&) = delete;
  // The gradient of the tensor with this index; undefined: no call has given any.
  at::Tensor gradient(size_t i) const;

  // Of a call's input; null: none is kept.
  static std::shared_ptr<RowSum> of(const at::Tensor& input);

 private:
  Tensors of_;
  std::vector<std::shared_ptr<RowSum>> sums_;
  RowSums* const before_;
};
// Sums that are not one chain over rows are joined of blocks of this many, or of a part of them: of
// 64 rows a norm's (kernels/rows-inl.h), of 32 a product's (kernels::Rounding::kBlocks).
constexpr int64_t kRowSumBlock = 64;

// The argument of a backward lambda: the gradients of the call's outputs, contiguous.
class Gradients {
 public:
  using Sums = std::vector<std::shared_ptr<RowSum>>;
  Gradients(Tensors of, const torch::autograd::Node& node, const Sums& sums)
      : of_(std::move(of)), node_(node), sums_(sums) {}
  const at::Tensor& operator[](size_t output) const { return of_[output]; }
  const Tensors& all() const { return of_; }
  // Whether this backward pass needs the gradient of the call's input with this index.
  bool wanted(size_t input) const;
  // Where the input's gradient is summed over rows; null: it is this call's alone.
  RowSum* row_sum(size_t input) const {
    return input < sums_.size() ? sums_[input].get() : nullptr;
  }
  // The same as a place: of the sum, or in `grads`, the gradients that the lambda gives.
  at::Tensor& sum_place(size_t input, Tensors& grads) const {
    RowSum* const sum = row_sum(input);
    return sum ? sum->sum : grads[input];
  }

 private:
  const Tensors of_;
  const torch::autograd::Node& node_;
  const Sums& sums_;
};

// One call of a differentiable function. From its constructor to output(), autograd records nothing
// else: whatever autograd should see, such as contiguous() of an argument, comes before it.
class Recording {
 public:
  // Returns the gradients of the inputs, in their order: undefined tensors where there is none;
  // trailing ones may be left out.
  using Backward = std::function<Tensors(const Gradients&)>;

  // The inputs that may need gradients; some may be undefined.
  explicit Recording(Tensors inputs);

  // Whether any input needs a gradient. If none does, outputs are returned unrecorded.
  bool records() const { return records_; }

  // Declares the tensors that the lambda reads, inputs or results, as ctx.save_for_backward() does;
  // some may be undefined. The backward pass throws if one of them was modified in place since. It
  // frees what the lambda captured, so a second backward pass through this call throws; if nothing
  // was declared, the lambda may run again.
  void reads(const Tensors& tensors);

  // Records and returns the function's output, a floating-point tensor. Its gradient is always
  // defined.
  at::Tensor output(const at::Tensor& y, Backward backward);
  // The same for several outputs; undefined ones stay undefined. An output that the loss does not
  // depend on has an undefined gradient.
  Tensors outputs(const Tensors& ys, Backward backward);

 private:
  Tensors finish(const Tensors& ys, Backward backward, bool with_zeros);

  Tensors inputs_;
  std::vector<std::pair<c10::VariableVersion, uint32_t>> read_;
  bool records_;
  std::optional<c10::AutoGradMode> no_grad_;
};

}  // namespace temper::ops
