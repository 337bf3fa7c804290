#include "temper/ops/host.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/ops/autograd.h"

namespace temper::ops {
namespace {

// In one copy, as each waits for the device. Tensors of one dtype.
Tensors copied_at_once(const Tensors& away) {
  Tensors flat;
  for (const at::Tensor& x : away) flat.push_back(x.reshape({-1}));
  const at::Tensor all = at::cat(flat).to(at::kCPU);
  Tensors here;
  int64_t first = 0;
  for (const at::Tensor& x : away) {
    here.push_back(all.narrow(0, first, x.numel()).view(x.sizes()));
    first += x.numel();
  }
  return here;
}

Tensors copied(const Tensors& away) {
  const bool records =
      std::any_of(away.begin(), away.end(), [](const at::Tensor& x) { return x.requires_grad(); });
  const bool alike = std::all_of(away.begin(), away.end(), [&](const at::Tensor& x) {
    return x.scalar_type() == away[0].scalar_type();
  });
  if (!records && alike) return copied_at_once(away);
  // A backward pass goes on when it has the gradients of all of them.
  Recording call(away);
  Tensors here = call.outputs(away, [](const Gradients& d) { return d.all(); });
  for (at::Tensor& x : here) x = x.to(at::kCPU);
  return here;
}

}  // namespace

std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors) {
  Tensors away;
  for (const at::Tensor& x : tensors)
    if (x.defined() && !x.is_cpu()) away.push_back(x);
  if (away.empty()) return tensors;
  const Tensors here = copied(away);
  size_t next = 0;
  for (at::Tensor& x : tensors)
    if (x.defined() && !x.is_cpu()) x = here[next++];
  return tensors;
}

}  // namespace temper::ops
