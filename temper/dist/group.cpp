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
#include "temper/dist/rendezvous.h"

namespace temper::dist {
namespace {

constexpr const char* kThisHost = "127.0.0.1";
constexpr const char* kTimeout = "TEMPER_TIMEOUT_SECONDS";
constexpr std::chrono::seconds kDefaultTimeout{120};
constexpr int kLongestTimeout = 7 * 24 * 3600;
constexpr int kMostRanks = 1 << 20;
constexpr size_t kLongestQuote = 300;
// A rank that is gone is noticed by its connections. This is for one that hangs, and longer than a
// rank may rightly take between two sums.
constexpr std::chrono::hours kLongestSum{6};

class SingleProcess : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::shared_ptr<Group> another(const std::string&) override {
    return std::make_shared<SingleProcess>();
  }
  void all_reduce_sum(at::Tensor&) override {}
  void barrier() override {}
};

struct Environment {
  int rank = 0, size = 1;
  std::string host;
  uint16_t port = 0;
  std::chrono::seconds timeout{};
};

// The first line: behind it stand c10d's stack traces.
std::string first_line(const std::exception& e) {
  const std::string what = e.what();
  return what.substr(0, std::min(what.find('\n'), kLongestQuote));
}

// Every rank's route to the first one, by rank, through the store.
std::vector<Route> exchange_routes(c10d::Store& store, const Environment& environment,
                                   const Route& own, const Patience& patience) {
  const auto key = [](int rank) { return temper::str("route/", rank); };
  const std::string text = to_text(own);
  store.set(key(environment.rank), std::vector<uint8_t>(text.begin(), text.end()));
  std::vector<Route> routes;
  for (int rank = 0; rank < environment.size; ++rank) {
    while (!store.check({key(rank)}))
      patience.pause(temper::str("rank ", rank, " of ", environment.size, " did not connect"));
    const std::vector<uint8_t> value = store.get(key(rank));
    routes.push_back(parse_route({value.begin(), value.end()}));
  }
  return routes;
}

class GlooGroup : public Group {
 public:
  GlooGroup(const Environment& environment, const Patience& patience)
      : rank_(environment.rank), size_(environment.size) {
    try {
      join(environment, patience);
    } catch (const Error& e) {
      throw RunError(temper::str("rank ", rank_, ": ", e.what()));
    } catch (const std::exception& e) {
      throw RunError(temper::str("rank ", rank_, ": the ranks did not find each other at ",
                                 environment.host, ":", environment.port, ": ", first_line(e)));
    }
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors{tensor};
    wait(group_->allreduce(tensors));
  }
  void barrier() override { wait(group_->barrier()); }
  std::shared_ptr<Group> another(const std::string& name) override {
    return std::shared_ptr<Group>(new GlooGroup(*this, name));
  }

 private:
  GlooGroup(const GlooGroup& of, const std::string& name)
      : rank_(of.rank_), size_(of.size_), store_(of.store_), options_(of.options_) {
    // Every attempt of torchrun's has a store of its own behind this one.
    prefixed_ = c10::make_intrusive<c10d::PrefixStore>(name, of.prefixed_);
    try {
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed_, rank_, size_, options_);
    } catch (const std::exception& e) {
      throw RunError(temper::str("rank ", rank_,
                                 ": the ranks did not find each other again: ", first_line(e)));
    }
    group_->setTimeout(kLongestSum);
  }

  void wait(const c10::intrusive_ptr<c10d::Work>& work) const {
    try {
      work->wait();
    } catch (const std::exception& e) {
      throw RunError(temper::str("rank ", rank_,
                                 ": another rank is gone, or waits for too long: ", first_line(e)));
    }
  }

  void join(const Environment& environment, const Patience& patience) {
    c10d::TCPStoreOptions options;
    options.port = environment.port;
    // torchrun's agent serves the store itself; without it the first rank does.
    options.isServer = rank_ == 0 && std::getenv("TORCHELASTIC_USE_AGENT_STORE") == nullptr;
    options.numWorkers = static_cast<size_t>(size_);
    options.waitWorkers = false;
    // c10d waits where nothing can stop it, and logs each failure: it is asked to connect only to
    // what is known to answer.
    c10::intrusive_ptr<c10d::TCPStore> store;
    options.timeout = patience.left();
    if (options.isServer) store = c10::make_intrusive<c10d::TCPStore>(kThisHost, options);
    const Route own = find_route(environment.host, environment.port, patience);
    options.timeout = patience.left();
    if (!store) store = c10::make_intrusive<c10d::TCPStore>(own.remote, options);
    // torchrun's store outlives an attempt that it restarts.
    const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
    prefixed_ = c10::make_intrusive<c10d::PrefixStore>(
        temper::str("temper/", attempt ? attempt : "0"), store);
    const std::vector<Route> routes = exchange_routes(*prefixed_, environment, own, patience);
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    options_ = c10d::ProcessGroupGloo::Options::create(patience.left());
    options_->devices.push_back(
        interface ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                  : c10d::ProcessGroupGloo::createDeviceForHostname(choose_address(own, routes)));
    store_ = std::move(store);
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed_, rank_, size_, options_);
    group_->setTimeout(kLongestSum);
  }

  int rank_, size_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  c10::intrusive_ptr<c10d::PrefixStore> prefixed_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> options_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

int environment_number(const char* name, int most) {
  const char* text = std::getenv(name);
  int value = -1;
  if (text) {
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, value);
    if (error != std::errc() || stop != end) value = -1;
  }
  check<ConfigError>(
      value >= 0 && value <= most, "environment: ", name,
      text ? temper::str(" is `", std::string(text).substr(0, 40), "`") : " is not set",
      ", expected a number from 0 to ", most,
      " for each of several ranks; start them with torchrun or --nproc");
  return value;
}

Environment read_environment() {
  Environment e;
  if (!std::getenv("WORLD_SIZE")) {
    check<ConfigError>(!std::getenv("RANK"),
                       "environment: RANK is set and WORLD_SIZE is not; start ranks with torchrun "
                       "or --nproc, or unset RANK");
    return e;
  }
  e.size = environment_number("WORLD_SIZE", kMostRanks);
  e.rank = environment_number("RANK", kMostRanks);
  check<ConfigError>(e.rank < e.size, "environment: RANK ", e.rank, " of WORLD_SIZE ", e.size);
  if (e.size == 1) return e;
  const char* host = std::getenv("MASTER_ADDR");
  e.host = host && *host ? host : kThisHost;
  e.port = static_cast<uint16_t>(environment_number("MASTER_PORT", 65535));
  e.timeout = std::getenv(kTimeout)
                  ? std::chrono::seconds(environment_number(kTimeout, kLongestTimeout))
                  : kDefaultTimeout;
  return e;
}

}  // namespace

std::shared_ptr<Group> Group::from_environment(const std::function<bool()>& stop) {
  const Environment environment = read_environment();
  if (environment.size == 1) return std::make_shared<SingleProcess>();
  return std::make_shared<GlooGroup>(environment, Patience(environment.timeout, stop));
}

std::shared_ptr<Group> Group::another(const std::string& name) {
  throw RunError(temper::str("these ranks cannot be grouped again (", name, ")"));
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
