// Collectives among tensors that lie on devices, where c10d has a transport for them; without one
// they go through the host's memory.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace temper::dist {

// Makes the transport of one group of ranks; null where this rank cannot take part. It must have
// _allgather_base, alltoall_base and broadcast.
using MakeTransport =
    c10::intrusive_ptr<c10d::Backend> (*)(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                          int size, std::chrono::milliseconds longest_wait);

// CUDA has NCCL, in a plugin (nccl/nccl.cpp): it is built where LibTorch has CUDA and NCCL's header
// is there, and used where each rank of a machine has a GPU of its own. TEMPER_NCCL=off: it is not.
// Throws RunError where the plugin does not load.
c10::intrusive_ptr<c10d::Backend> make_transport(at::DeviceType kind,
                                                 const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, int size,
                                                 std::chrono::milliseconds longest_wait);
// For a kind of device that a program has added. Before groups are made.
void set_transport(at::DeviceType kind, MakeTransport make);

}  // namespace temper::dist
