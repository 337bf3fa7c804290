#include "temper/dist/gloo.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "temper/base/error.h"
#include "temper/base/stopped.h"
#include "temper/dist/device_transport.h"
#include "temper/dist/peer_watch.h"
#include "temper/metrics/trace.h"

namespace temper::dist {
namespace {

constexpr const char* kThisHost = "127.0.0.1";
constexpr size_t kLongestQuote = 300;
constexpr auto kLostPeerWait = std::chrono::milliseconds(1500);
// Elements below which a sum is one exchange of everything: latency counts more than bytes.
constexpr int64_t kSmallSum = 4096;

// Bytes of the whole below which parts are sent to each other rank at once: gloo's ring takes three
// times as long.
constexpr int64_t kSmallGather = int64_t{1} << 18;

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

// The name of a group's counter: the one of "fsdp/2" is that of the axis fsdp.
std::string count_name(const std::string& group) {
  return "sent bytes: " + group.substr(0, group.find('/'));
}

// A note about a lost rank, made on another thread than the one whose collective fails.
class LostPeerNote {
 public:
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = text;
    noted_.notify_all();
  }
  // Waits a moment for the note; empty: there is none.
  std::string wait() {
    std::unique_lock lock(mutex_);
    noted_.wait_for(lock, kLostPeerWait, [this] { return !text_.empty(); });
    return text_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable noted_;
  std::string text_;
};

// Counts the bytes of tensors that a rank hands to others (trace::count), without the transport's
// own: gloo gathers around a ring, sums are exchanged directly.
class GlooGroup : public Group {
 public:
  GlooGroup(const std::string& name, const c10::intrusive_ptr<c10d::Store>& store, int rank,
            int size, int rank_of_all, bool in_step, std::shared_ptr<Group> twins,
            std::shared_ptr<LostPeerNote> lost_peer,
            const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options)
      : count_name_(count_name(name)),
        rank_(rank),
        size_(size),
        rank_of_all_(rank_of_all),
        in_step_(in_step),
        twins_(std::move(twins)),
        lost_peer_(std::move(lost_peer)),
        store_(c10::make_intrusive<c10d::PrefixStore>(name, store)),
        options_(options) {
    const NewConnections connections;
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, rank, size, options);
    connections.notice_loss();
  }
  std::shared_ptr<Group> clone_for_thread(const std::string& name) override {
    try {
      auto made = std::make_shared<GlooGroup>(name, store_, rank_, size_, rank_of_all_, in_step_,
                                              twins_ ? twins_->clone_for_thread(name) : nullptr,
                                              lost_peer_, options_);
      made->set_timeout(longest_wait_);
      return made;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      throw RunError(temper::str("rank ", rank_of_all_, ": the ranks could not connect to each ",
                                 "other for `", name, "`: ", first_line(e)));
    }
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool is_writer() const override { return rank_of_all_ == 0; }
  bool in_step() const override { return in_step_; }
  bool has_twins() const override { return twins_ != nullptr; }
  bool leads() const override { return !twins_ || twins_->rank() == 0; }
  std::string agreed(const std::string& text) override {
    return twins_ ? twins_->all_gather(leads() ? text : "")[0] : text;
  }
  void set_timeout(std::chrono::milliseconds longest) {
    longest_wait_ = longest;
    group_->setTimeout(longest);
  }

  using Group::all_gather;
  using Group::all_reduce_sum;
  void all_reduce_sum(at::Tensor& tensor) override {
    const at::NoGradGuard no_grad;
    if (!reaches(tensor)) return through_host(tensor, [this](at::Tensor& x) { all_reduce_sum(x); });
    const int64_t count = tensor.numel(), part = (count + size_ - 1) / size_;
    if (count == 0) return;
    at::Tensor flat = tensor.view({-1});
    if (count <= kSmallSum) {
      at::Tensor all = at::empty({size_ * count}, tensor.options());
      all_gather(flat, all);
      return sum_in_order(all, flat);
    }
    at::Tensor padded = flat, mine = at::empty({part}, tensor.options());
    if (part * size_ != count) {
      padded = at::zeros({part * size_}, tensor.options());
      padded.narrow(0, 0, count).copy_(flat);
    }
    reduce_scatter_sum(padded, mine);
    all_gather(mine, padded);
    if (part * size_ != count) flat.copy_(padded.narrow(0, 0, count));
  }
  void all_gather(const at::Tensor& part, at::Tensor& whole) override {
    if (!reaches(whole)) {
      const at::Tensor here = part.detach().to(at::kCPU);
      return through_host(whole, [&](at::Tensor& x) { all_gather(here, x); });
    }
    at::Tensor mine = part.detach();
    count(static_cast<int64_t>(part.nbytes()) * (size_ - 1));
    if (!whole.is_cpu() || static_cast<int64_t>(whole.nbytes()) > kSmallGather)
      return wait(transport(whole)._allgather_base(whole, mine));
    at::Tensor to_each = mine.view({1, -1}).repeat({size_, 1}), all = whole.view({size_, -1});
    std::vector<int64_t> evenly;
    wait(group_->alltoall_base(all, to_each, evenly, evenly));
  }
  void reduce_scatter_sum(const at::Tensor& whole, at::Tensor& part) override {
    const at::NoGradGuard no_grad;
    if (!reaches(part)) {
      const at::Tensor here = whole.detach().to(at::kCPU);
      return through_host(part, [&](at::Tensor& x) { reduce_scatter_sum(here, x); });
    }
    at::Tensor all = at::empty_like(whole);
    exchange(whole, all);
    sum_in_order(all, part);
  }
  void exchange(const at::Tensor& given, at::Tensor& taken) override {
    const at::NoGradGuard no_grad;
    if (!reaches(taken)) {
      const at::Tensor here = given.detach().to(at::kCPU);
      return through_host(taken, [&](at::Tensor& x) { exchange(here, x); });
    }
    at::Tensor mine = given.detach().view({-1}), theirs = taken.view({-1});
    count(static_cast<int64_t>(given.nbytes()) / size_ * (size_ - 1));
    std::vector<int64_t> evenly;
    wait(transport(taken).alltoall_base(theirs, mine, evenly, evenly));
  }
  void broadcast(at::Tensor& tensor, int root) override {
    if (!reaches(tensor)) return through_host(tensor, [&](at::Tensor& x) { broadcast(x, root); });
    std::vector<at::Tensor> tensors{tensor.detach()};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    if (rank_ == root) count(static_cast<int64_t>(tensor.nbytes()) * (size_ - 1));
    wait(transport(tensor).broadcast(tensors, options));
  }
  void send(const at::Tensor& tensor, int to) override {
    std::vector<at::Tensor> tensors{tensor.detach().to(at::kCPU)};
    count(static_cast<int64_t>(tensor.nbytes()));
    wait(group_->send(tensors, to, 0));
  }
  void receive(at::Tensor& tensor, int from) override {
    if (!tensor.is_cpu()) return through_host(tensor, [&](at::Tensor& x) { receive(x, from); });
    std::vector<at::Tensor> tensors{tensor.detach()};
    wait(group_->recv(tensors, from, 0));
  }
  void in_turn(at::Tensor& tensor, const std::function<void()>& add) override {
    if (tensor.numel() == 0) return add();
    if (rank_ > 0) receive(tensor, rank_ - 1);
    add();
    if (rank_ + 1 < size_) send(tensor, rank_ + 1);
    broadcast(tensor, size_ - 1);
  }
  void barrier() override { wait(group_->barrier()); }

 private:
  // Whether collectives reach the tensor where it lies: in the host's memory, or on a device for
  // which all ranks have a transport. Ranks find out in the first collective on a device.
  bool reaches(const at::Tensor& x) {
    if (x.is_cpu()) return true;
    if (!asked_) {
      asked_ = true;
      const auto prefixed = c10::make_intrusive<c10d::PrefixStore>("device", store_);
      c10::intrusive_ptr<c10d::Backend> made =
          make_transport(x.device().type(), prefixed, rank_, size_, longest_wait_);
      const std::vector<std::string> all = all_gather(std::string(made ? "1" : "0"));
      if (std::find(all.begin(), all.end(), "0") == all.end()) on_device_ = std::move(made);
    }
    return on_device_ != nullptr;
  }
  c10d::Backend& transport(const at::Tensor& x) {
    return x.is_cpu() ? static_cast<c10d::Backend&>(*group_) : *on_device_;
  }
  // gloo reads and writes the host's memory: what lies on a device goes through a copy there.
  template <class Collective>
  static void through_host(at::Tensor& tensor, const Collective& collective) {
    const at::NoGradGuard no_grad;
    at::Tensor here = tensor.detach().to(at::kCPU);
    collective(here);
    tensor.detach().copy_(here);
  }
  void count(int64_t bytes) const { trace::count(count_name_, bytes); }
  // all [size * n] by rank.
  void sum_in_order(const at::Tensor& all, at::Tensor& sum) const {
    const at::Tensor by_rank = all.view({size_, -1});
    at::Tensor out = sum.view({-1});
    if (size_ == 1) {
      out.copy_(by_rank[0]);
      return;
    }
    at::add_out(out, by_rank[0], by_rank[1]);
    for (int r = 2; r < size_; ++r) out.add_(by_rank[r]);
  }
  void wait(const c10::intrusive_ptr<c10d::Work>& work) const {
    try {
      work->wait();
    } catch (const std::exception&) {  // gloo's message about its sockets helps nobody
      const std::string known = lost_peer_->wait();
      note_heard();
      const double minutes = std::chrono::duration<double, std::ratio<60>>(longest_wait_).count();
      throw RunError(temper::str(
          "rank ", rank_of_all_, ": ",
          known.empty() ? temper::str("another rank exited, or did not join a collective within ",
                                      minutes, " minutes (mesh.timeout_minutes)")
                        : known,
          "; the output of the other ranks may say why"));
    }
  }

  const std::string count_name_;
  int rank_, size_, rank_of_all_;
  bool in_step_;
  std::shared_ptr<Group> twins_;
  std::shared_ptr<LostPeerNote> lost_peer_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> options_;
  std::chrono::milliseconds longest_wait_{};
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  bool asked_ = false;
  c10::intrusive_ptr<c10d::Backend> on_device_;  // null: none
};

}  // namespace

struct GlooWorld::Connection {
  Environment environment;
  c10::intrusive_ptr<c10d::TCPStore> store;
  c10::intrusive_ptr<c10d::PrefixStore> prefixed;
  std::string address;  // to listen on
  std::chrono::milliseconds join{}, longest_wait{};
  const std::shared_ptr<LostPeerNote> lost_peer = std::make_shared<LostPeerNote>();

  void connect(const Patience& patience) {
    c10d::TCPStoreOptions options;
    options.port = environment.port;
    // torchrun's agent may serve the store itself; else the first rank does.
    const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    options.isServer = environment.rank == 0 && std::string_view(agent ? agent : "") != "True";
    if (options.isServer) options.masterListenFd = inherited_socket(environment);
    options.numWorkers = static_cast<size_t>(environment.size);
    options.waitWorkers = false;
    // c10d waits where nothing can stop it, and logs each failure: it is asked to connect only to
    // an address that is known to answer.
    options.timeout = patience.left();
    if (options.isServer) store = c10::make_intrusive<c10d::TCPStore>(kThisHost, options);
    const Route own = find_route(environment.host, environment.port, patience);
    options.timeout = patience.left();
    if (!store) store = c10::make_intrusive<c10d::TCPStore>(own.remote, options);
    // torchrun's store outlives an attempt that it restarts.
    const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
    prefixed = c10::make_intrusive<c10d::PrefixStore>(
        temper::str("temper/", attempt ? attempt : "0"), store);
    address = choose_address(own, exchange_routes(*prefixed, environment, own, patience));
    join = patience.left();
  }

  std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& ranks, bool in_step,
                               std::shared_ptr<Group> twins) const {
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    auto options = c10d::ProcessGroupGloo::Options::create(join);
    options->devices.push_back(
        interface ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                  : c10d::ProcessGroupGloo::createDeviceForHostname(address));
    const auto place = std::find(ranks.begin(), ranks.end(), environment.rank) - ranks.begin();
    const auto made = std::make_shared<GlooGroup>(name, prefixed, static_cast<int>(place),
                                                  static_cast<int>(ranks.size()), environment.rank,
                                                  in_step, std::move(twins), lost_peer, options);
    made->set_timeout(longest_wait);
    return made;
  }

  // Turns c10d's exceptions into an error that says which rank could not do the work.
  template <class Work>
  auto named(const Work& work) const {
    try {
      return work();
    } catch (const Stopped& e) {
      throw Stopped(temper::str("rank ", environment.rank, ": ", e.what()));
    } catch (const Error& e) {
      throw RunError(temper::str("rank ", environment.rank, ": ", e.what()));
    } catch (const std::exception& e) {
      const bool of_store = dynamic_cast<const c10::DistError*>(&e) != nullptr;
      throw RunError(temper::str("rank ", environment.rank, ": ",
                                 explain(first_line(e), of_store && environment.rank > 0)));
    }
  }

  std::string explain(const std::string& what, bool lost_first) const {
    if (what.find("EADDRINUSE") != std::string::npos)
      return temper::str("the port ", environment.port,
                         " is in use, by another program or another rank 0; choose another "
                         "MASTER_PORT, and give each rank a RANK of its own");
    const std::string place = temper::str(environment.host, ":", environment.port);
    return lost_first ? temper::str("no connection to the rendezvous at ", place,
                                    ", which rank 0 or torchrun serves; the output of rank 0 says "
                                    "why (",
                                    what, ")")
                      : temper::str("the ranks did not find each other at ", place, ": ", what);
  }
};

GlooWorld::GlooWorld(const Environment& environment, const Patience& patience,
                     std::chrono::milliseconds longest_wait)
    : connection_(std::make_shared<Connection>()) {
  connection_->environment = environment;
  connection_->longest_wait = longest_wait;
  connection_->named([&] { connection_->connect(patience); });
}

GlooWorld::~GlooWorld() = default;

std::shared_ptr<Group> GlooWorld::group(const std::string& name, const std::vector<int>& ranks,
                                        bool in_step, std::shared_ptr<Group> twins) const {
  return connection_->named(
      [&] { return connection_->group(name, ranks, in_step, std::move(twins)); });
}

const std::string& GlooWorld::address() const { return connection_->address; }

void GlooWorld::note_lost_peer(const std::string& text) const {
  connection_->lost_peer->note(text);
}

void GlooWorld::put(const std::string& name, const std::string& text) const {
  connection_->named([&] {
    connection_->prefixed->set("told/" + name, std::vector<uint8_t>(text.begin(), text.end()));
  });
}

std::optional<std::string> GlooWorld::find(const std::string& name) const {
  return connection_->named([&]() -> std::optional<std::string> {
    if (!connection_->prefixed->check({"told/" + name})) return {};
    const std::vector<uint8_t> text = connection_->prefixed->get("told/" + name);
    return std::string(text.begin(), text.end());
  });
}

}  // namespace temper::dist
