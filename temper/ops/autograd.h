// Differentiable functions without a class each: a function computes its outputs, and says in a
// lambda what gradients they give its inputs.
//
//   at::Tensor scaled(const at::Tensor& x, const at::Tensor& by) {  // x * by
//     Recording call({x, by});
//     call.reads({x, by});
//     return call.output(x * by, [=](const Gradients& d) -> Tensors {
//       return {d[0] * by, d.wanted(1) ? d[0] * x : at::Tensor()};
//     });
//   }
//
// The lambda keeps what it captures, the function's own results among that, until the backward pass
// has run it or the graph goes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace temper::ops {

using Tensors = std::vector<at::Tensor>;

// What a backward pass is given: the gradients of a call's outputs, contiguous.
class Gradients {
 public:
  Gradients(Tensors of, const torch::autograd::Node& node) : of_(std::move(of)), node_(node) {}
  const at::Tensor& operator[](size_t output) const { return of_[output]; }
  const Tensors& all() const { return of_; }
  // Whether this pass asks for the gradient of that input of the call.
  bool wanted(size_t input) const;

 private:
  const Tensors of_;
  const torch::autograd::Node& node_;
};

// One call of a differentiable function. From its beginning to its output autograd records nothing
// else: what the function first makes of its arguments, such as contiguous(), comes before it.
class Recording {
 public:
  // Gradients of the inputs, in their order; undefined where there is none, as are those that are
  // missing at the end.
  using Backward = std::function<Tensors(const Gradients&)>;

  // The tensors that gradients may be asked for; some may be undefined.
  explicit Recording(Tensors inputs);

  // Whether anything asks for a gradient. Where nothing does, outputs are returned as they are.
  bool records() const { return records_; }

  // Tensors that the lambda reads, inputs or results; some may be undefined. A backward pass throws
  // where one of them has been written to since. It frees what the lambda has captured, and a
  // second one through this call throws; without such tensors the lambda may run again.
  void reads(const Tensors& tensors);

  // The function's output, floating-point, recorded. Its gradient is always defined.
  at::Tensor output(const at::Tensor& y, Backward backward);
  // Several, which may be undefined and stay so. Outputs that nothing was computed from have an
  // undefined gradient.
  Tensors outputs(const Tensors& ys, Backward backward);

 private:
  Tensors finish(const Tensors& ys, Backward backward, bool with_zeros);

  Tensors inputs_;
  std::vector<std::pair<c10::VariableVersion, uint32_t>> read_;
  bool records_;
  std::optional<c10::AutoGradMode> nothing_else_;
};

}  // namespace temper::ops
