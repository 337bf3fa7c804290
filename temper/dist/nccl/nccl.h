// The interface of the plugin with NCCL.
#pragma once

#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

// Returns a reference that the caller reclaims.
extern "C" __attribute__((visibility("default"))) c10d::Backend* temper_make_nccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    int64_t longest_wait_milliseconds);
