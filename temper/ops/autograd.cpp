#include "temper/ops/autograd.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <mutex>

#include "temper/base/error.h"

namespace temper::ops {
namespace {

using Versions = std::vector<std::pair<c10::VariableVersion, uint32_t>>;

thread_local RowSums* row_sums = nullptr;

// The backward pass of a call in autograd's graph.
class CallNode : public torch::autograd::Node {
 public:
  CallNode(Recording::Backward backward, Versions read, bool with_zeros, Gradients::Sums sums)
      : backward_(std::move(backward)),
        read_(std::move(read)),
        with_zeros_(with_zeros),
        sums_(std::move(sums)) {}

  Tensors apply(Tensors&& gradients) override {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(backward_, torch::autograd::ERR_BACKWARD_TWICE);
    for (const auto& [now, then] : read_)
      check(now.current_version() == then,
            "a tensor that the backward pass reads has been written to since the forward pass");
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined())
        gradients[i] = gradients[i].contiguous();
      else if (with_zeros_)
        gradients[i] = input_metadata(i).zeros_like();
    }
    Tensors found = backward_(Gradients(std::move(gradients), *this, sums_));
    found.resize(num_outputs());
    return found;
  }
  void release_variables() override {
    const std::lock_guard lock(mutex_);
    if (!read_.empty()) backward_ = nullptr;
  }
  void release_resources() override {
    Node::release_resources();
    backward_ = nullptr;
  }

 private:
  Recording::Backward backward_;
  const Versions read_;
  const bool with_zeros_;
  const Gradients::Sums sums_;  // of the inputs; empty: of none
};

}  // namespace

RowSums::RowSums(Tensors of) : of_(std::move(of)), before_(row_sums) {
  for (size_t i = 0; i < of_.size(); ++i) sums_.push_back(std::make_shared<RowSum>());
  row_sums = this;
}
RowSums::~RowSums() { row_sums = before_; }

at::Tensor RowSums::gradient(size_t i) const {
  const RowSum& of = *sums_[i];
  return of.sum.defined() && of.finish ? of.finish(of.sum) : of.sum;
}

std::shared_ptr<RowSum> RowSums::of(const at::Tensor& input) {
  if (!row_sums || !input.defined()) return nullptr;
  for (size_t i = 0; i < row_sums->of_.size(); ++i)
    if (row_sums->of_[i].is_same(input)) return row_sums->sums_[i];
  return nullptr;
}

bool Gradients::wanted(size_t input) const { return node_.task_should_compute_output(input); }

Recording::Recording(Tensors inputs)
    : inputs_(std::move(inputs)),
      records_(c10::GradMode::is_enabled() && torch::autograd::any_variable_requires_grad(inputs_)),
      no_grad_(std::in_place, false) {}

void Recording::reads(const Tensors& tensors) {
  if (!records_) return;
  for (const at::Tensor& x : tensors)
    if (x.defined()) read_.emplace_back(torch::autograd::impl::version_counter(x), x._version());
}

at::Tensor Recording::output(const at::Tensor& y, Backward backward) {
  return finish({y}, std::move(backward), true)[0];
}
Tensors Recording::outputs(const Tensors& ys, Backward backward) {
  return finish(ys, std::move(backward), false);
}

// The graph begins at aliases of the results, which the lambda may then capture: no cycle of
// references comes of it.
Tensors Recording::finish(const Tensors& ys, Backward backward, bool with_zeros) {
  no_grad_.reset();
  if (!records_) return ys;
  Gradients::Sums sums;
  if (row_sums)
    for (const at::Tensor& input : inputs_) sums.push_back(RowSums::of(input));
  const auto node = c10::make_intrusive<CallNode>(std::move(backward), std::move(read_), with_zeros,
                                                  std::move(sums));
  node->set_next_edges(torch::autograd::collect_next_edges(inputs_));
  Tensors found;
  for (const at::Tensor& y : ys) {
    found.push_back(y.defined() ? y.detach() : y);
    if (y.defined())
      torch::autograd::create_gradient_edge(found.back(), node);
    else
      node->add_input_metadata(torch::autograd::Node::undefined_input());
  }
  return found;
}

}  // namespace temper::ops
