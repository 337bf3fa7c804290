// From a device to the host, where losses are computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace temper::ops {

// The tensors in the host's memory; those that are there already as they are, undefined ones
// undefined. Differentiable. Tensors that one backward pass goes through are given together: their
// gradients then go on to the device together. One by one, each would go when the host has computed
// it, and in which order the device adds up what it gets would be a matter of time.
std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors);

}  // namespace temper::ops
