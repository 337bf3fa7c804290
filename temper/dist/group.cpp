#include "temper/dist/group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "temper/base/error.h"

namespace temper::dist {
namespace {

class Alone : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(at::Tensor&) override {}
  void barrier() override {}
};

class GlooGroup : public Group {
 public:
  GlooGroup(int rank, int size, const std::string& host, uint16_t port) : rank_(rank), size_(size) {
    try {
      c10d::TCPStoreOptions options;
      options.port = port;
      // torchrun's agent serves the store itself; without it the first rank does.
      options.isServer = rank == 0 && std::getenv("TORCHELASTIC_USE_AGENT_STORE") == nullptr;
      options.numWorkers = static_cast<size_t>(size);
      options.waitWorkers = false;
      options.timeout = std::chrono::seconds(60);
      store_ = c10::make_intrusive<c10d::TCPStore>(host, options);
      auto gloo = c10d::ProcessGroupGloo::Options::create(std::chrono::hours(6));
      gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
      auto prefixed = c10::make_intrusive<c10d::PrefixStore>("temper", store_);
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, rank, size, gloo);
    } catch (const std::exception& e) {
      throw RunError(temper::str("rank ", rank, ": the ranks did not find each other at ", host,
                                 ":", port, ": ", e.what()));
    }
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors{tensor};
    wait(group_->allreduce(tensors));
  }
  void barrier() override { wait(group_->barrier()); }

 private:
  void wait(const c10::intrusive_ptr<c10d::Work>& work) const {
    try {
      work->wait();
    } catch (const std::exception& e) {
      throw RunError(temper::str("rank ", rank_, ": another rank is gone, or waits for too long: ",
                                 std::string(e.what()).substr(0, 200)));
    }
  }
  int rank_, size_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

int environment_number(const char* name) {
  const char* text = std::getenv(name);
  int value = -1;
  if (text) std::from_chars(text, text + std::strlen(text), value);
  check<ConfigError>(
      value >= 0, "environment: ", name,
      " must be a number where WORLD_SIZE is set; start the ranks with torchrun or --nproc");
  return value;
}

}  // namespace

std::shared_ptr<Group> Group::from_environment() {
  if (!std::getenv("WORLD_SIZE")) return std::make_shared<Alone>();
  const int size = environment_number("WORLD_SIZE"), rank = environment_number("RANK");
  check<ConfigError>(rank < size, "environment: RANK ", rank, " of WORLD_SIZE ", size);
  if (size == 1) return std::make_shared<Alone>();
  const char* host = std::getenv("MASTER_ADDR");
  return std::make_shared<GlooGroup>(rank, size, host ? host : "127.0.0.1",
                                     static_cast<uint16_t>(environment_number("MASTER_PORT")));
}

void Group::all_reduce_sum(std::vector<double>& values) {
  if (size() == 1) return;
  at::Tensor tensor = at::tensor(values, at::kDouble);
  all_reduce_sum(tensor);
  std::memcpy(values.data(), tensor.const_data_ptr<double>(), values.size() * sizeof(double));
}

// A sum in which every rank adds its own part to zeros.
std::vector<std::string> Group::all_gather(const std::string& bytes) {
  if (size() == 1) return {bytes};
  std::vector<double> lengths(static_cast<size_t>(size()));
  lengths[static_cast<size_t>(rank())] = static_cast<double>(bytes.size());
  all_reduce_sum(lengths);
  int64_t total = 0, mine = 0;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) mine = total;
    total += static_cast<int64_t>(lengths[static_cast<size_t>(r)]);
  }
  at::Tensor all = at::zeros({total}, at::kByte);
  std::memcpy(all.mutable_data_ptr<uint8_t>() + mine, bytes.data(), bytes.size());
  if (total > 0) all_reduce_sum(all);
  std::vector<std::string> out;
  const char* from = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
  for (const double length : lengths) {
    out.emplace_back(from, static_cast<size_t>(length));
    from += static_cast<size_t>(length);
  }
  return out;
}

double Group::all_reduce_max(double value) {
  std::vector<double> values(static_cast<size_t>(size()));
  values[static_cast<size_t>(rank())] = value;
  all_reduce_sum(values);
  return *std::max_element(values.begin(), values.end());
}

}  // namespace temper::dist
