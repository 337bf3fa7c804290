// A transport for tensors on the device for tests, as NCCL is one for CUDA's: through c10d's store,
// which the ranks have anyway. With TEMPER_PRETEND_TRANSPORT in the environment the device has it;
// at the end it says on standard error how often it was used.
#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "temper/dist/device_transport.h"

namespace pretend {
namespace {

std::atomic<int64_t> collectives = 0;

class Done : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

class StoreTransport : public c10d::Backend {
 public:
  StoreTransport(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : Backend(rank, size), store_(std::move(store)) {}

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& whole, at::Tensor& part,
                                                 const c10d::AllgatherOptions&) override {
    const std::vector<at::Tensor> all = exchange(part);
    for (int r = 0; r < size_; ++r) whole.view({size_, -1})[r].copy_(all[static_cast<size_t>(r)]);
    return c10::make_intrusive<Done>();
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& out, at::Tensor& in,
                                               std::vector<int64_t>&, std::vector<int64_t>&,
                                               const c10d::AllToAllOptions&) override {
    const std::vector<at::Tensor> all = exchange(in);
    for (int r = 0; r < size_; ++r)
      out.view({size_, -1})[r].copy_(all[static_cast<size_t>(r)].view({size_, -1})[rank_]);
    return c10::make_intrusive<Done>();
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const std::vector<at::Tensor> all = exchange(tensors[0]);
    tensors[0].view({-1}).copy_(all[static_cast<size_t>(options.rootRank)]);
    return c10::make_intrusive<Done>();
  }

 private:
  // What every rank gave, by rank, in the host's memory.
  std::vector<at::Tensor> exchange(const at::Tensor& own) {
    TORCH_CHECK(own.is_privateuseone(), "not a tensor on the device");
    ++collectives;
    const at::Tensor here = own.to(at::kCPU).contiguous().view({-1});
    const auto* bytes = static_cast<const uint8_t*>(here.const_data_ptr());
    const int64_t number = number_++;
    const auto key = [&](int rank) { return c10::str(number, "/", rank); };
    store_->set(key(rank_), std::vector<uint8_t>(bytes, bytes + here.nbytes()));
    std::vector<at::Tensor> all;
    for (int r = 0; r < size_; ++r) {
      const std::vector<uint8_t> of_rank = store_->get(key(r));  // waits for it
      TORCH_CHECK(of_rank.size() == here.nbytes(), "ranks give tensors of different sizes");
      all.push_back(at::empty_like(here));
      std::memcpy(all.back().mutable_data_ptr(), of_rank.data(), of_rank.size());
    }
    return all;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int64_t number_ = 0;
};

c10::intrusive_ptr<c10d::Backend> make(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, std::chrono::milliseconds) {
  return c10::make_intrusive<StoreTransport>(store, rank, size);
}

const bool registered = [] {
  if (!std::getenv("TEMPER_PRETEND_TRANSPORT")) return false;
  temper::dist::set_transport(c10::DeviceType::PrivateUse1, &make);
  std::atexit([] { std::fprintf(stderr, "collectives on the device: %ld\n", collectives.load()); });
  return true;
}();

}  // namespace
}  // namespace pretend
