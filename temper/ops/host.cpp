#include "temper/ops/host.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/ops/autograd.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The same tensors. A backward pass runs it once, when it has the gradients of all of them.
struct Together : Function<Together> {
  static variable_list forward(AutogradContext* ctx, at::TensorList tensors) {
    ctx->set_materialize_grads(false);
    return tensors.vec();
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return gradients; }
};

// In one copy, as each waits for the device. Tensors of one dtype.
variable_list copied_at_once(const variable_list& away) {
  variable_list flat;
  for (const at::Tensor& x : away) flat.push_back(x.reshape({-1}));
  const at::Tensor all = at::cat(flat).to(at::kCPU);
  variable_list here;
  int64_t first = 0;
  for (const at::Tensor& x : away) {
    here.push_back(all.narrow(0, first, x.numel()).view(x.sizes()));
    first += x.numel();
  }
  return here;
}

variable_list copied(const variable_list& away) {
  const bool records =
      std::any_of(away.begin(), away.end(), [](const at::Tensor& x) { return x.requires_grad(); });
  const bool alike = std::all_of(away.begin(), away.end(), [&](const at::Tensor& x) {
    return x.scalar_type() == away[0].scalar_type();
  });
  if (!records && alike) return copied_at_once(away);
  variable_list here = Together::apply(at::TensorList(away));
  for (at::Tensor& x : here) x = x.to(at::kCPU);
  return here;
}

}  // namespace

std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors) {
  variable_list away;
  for (const at::Tensor& x : tensors)
    if (x.defined() && !x.is_cpu()) away.push_back(x);
  if (away.empty()) return tensors;
  const variable_list here = copied(away);
  size_t next = 0;
  for (at::Tensor& x : tensors)
    if (x.defined() && !x.is_cpu()) x = here[next++];
  return tensors;
}

}  // namespace temper::ops
