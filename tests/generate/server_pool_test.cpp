// Which pool has a server load which weights, and how often, where several ask the same server.
#include "temper/generate/remote/server_pool.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <map>
#include <thread>

#include "temper/serve/server.h"

using namespace temper;
using namespace temper::generate;
using namespace temper::generate::remote;

namespace {

// What servers would have, in this process. Their addresses are those of a server that answers
// /health alone.
struct Servers {
  std::mutex mutex;
  std::condition_variable met;
  std::string weights = "its own";
  std::map<std::string, int> loads;  // by version
  int sampled_with_others = 0;
  bool down = false;
  std::string refusal;  // of the next load
  int busy = 0;         // samples that are refused as busy; some ask to wait for a moment
  int meeting = 0;      // samples that wait until so many are there, and find the weights lost
};

class Fake : public Protocol {
 public:
  explicit Fake(std::shared_ptr<Servers> servers) : servers_(std::move(servers)) {}
  int64_t most_samples() const override { return 1; }
  std::string model_name(http::Client&) const override { return "model"; }
  std::vector<RemoteSample> sample(http::Client&, const std::string&, const SampleTask&,
                                   const RemoteWeights& weights) const override {
    std::unique_lock lock(servers_->mutex);
    if (servers_->meeting > 0) {
      if (--servers_->meeting == 0) {
        servers_->weights = "its own";
        servers_->met.notify_all();
      }
      servers_->met.wait(lock, [this] { return servers_->meeting == 0; });
      lost();
    }
    if (servers_->down) throw http::Failure("gone", true);
    if (servers_->busy > 0) {
      --servers_->busy;
      throw http::Failure("/sample: status 429 too many", false, 429, 0.0);
    }
    if (servers_->weights != weights.version) lost();
    return {RemoteSample{}};
  }
  void load(http::Client&, const RemoteWeights& weights, const RemoteWeights&) const override {
    const std::lock_guard lock(servers_->mutex);
    if (servers_->down) throw http::Failure("gone", true);
    if (!servers_->refusal.empty()) throw DataError(std::exchange(servers_->refusal, {}));
    servers_->weights = weights.version;
    ++servers_->loads[weights.version];
  }

 private:
  void lost() const {
    ++servers_->sampled_with_others;
    throw WrongWeights("other weights");
  }
  std::shared_ptr<Servers> servers_;
};

// Asks another pool.
class ByPool : public WeightsLoader {
 public:
  explicit ByPool(ServerPool& pool) : pool_(pool) {}
  int64_t load(size_t server, const RemoteWeights& weights, int64_t lost) override {
    return pool_.load(server, weights, lost);
  }
  void stop() override { pool_.stop(); }

 private:
  ServerPool& pool_;
};

// Two pools of one server, of which the first has it load weights.
struct Two {
  static serve::ServerOptions healthy() {
    serve::ServerOptions o;
    o.port = 0;
    return o;
  }
  PoolOptions options(std::shared_ptr<WeightsLoader> loader) const {
    return {.servers = {{http::parse_url(health.address()), "", "a server"}},
            .timeout_seconds = 60,
            .loader = std::move(loader)};
  }
  Two() {
    health.bind();
    listening = std::thread([this] { health.listen(); });
    first = std::make_unique<ServerPool>(options(nullptr), std::make_unique<Fake>(servers));
    second = std::make_unique<ServerPool>(options(std::make_shared<ByPool>(*first)),
                                          std::make_unique<Fake>(servers));
  }
  ~Two() {
    second.reset();
    first.reset();
    http::Client(http::parse_url(health.address()), "", 60)
        .get("/health");  // it has begun to listen
    health.stop();
    listening.join();
  }
  void use(const std::string& version) const {
    for (ServerPool* pool : {first.get(), second.get()})
      pool->set_weights({version, "/" + version});
  }
  // So many samples by each pool, at once.
  void sample(int each) const {
    std::vector<std::thread> threads;
    for (ServerPool* pool : {first.get(), second.get()})
      for (int i = 0; i < each; ++i)
        threads.emplace_back([pool] { CHECK(pool->sample({}, 0).size() == 1); });
    for (std::thread& thread : threads) thread.join();
  }

  std::shared_ptr<Servers> servers = std::make_shared<Servers>();
  serve::Server health{healthy(), nullptr};
  std::thread listening;
  std::unique_ptr<ServerPool> first, second;
};

using Loads = std::map<std::string, int>;

}  // namespace

TEST_CASE("a server loads each version once, whoever samples") {
  const Two two;
  for (const char* version : {"1", "2", "3"}) {
    two.use(version);
    two.sample(8);
  }
  CHECK(two.servers->loads == Loads{{"1", 1}, {"2", 1}, {"3", 1}});
  CHECK(two.servers->sampled_with_others == 0);
}

TEST_CASE("a version may be asked for by one pool before the other uses it") {
  const Two two;
  two.use("1");
  two.sample(1);
  two.second->set_weights({"2", "/2"});
  two.second->sample({}, 0);
  two.first->set_weights({"2", "/2"});
  two.first->sample({}, 0);
  CHECK(two.servers->loads == Loads{{"1", 1}, {"2", 1}});
}

TEST_CASE("a server that was restarted unnoticed is loaded once more, however many notice") {
  const Two two;
  two.use("1");
  two.sample(4);
  // All samples of both pools are answered before any of them loads.
  two.servers->meeting = 16;
  two.sample(8);
  CHECK(two.servers->sampled_with_others == 16);
  CHECK(two.servers->loads == Loads{{"1", 2}});
  // One pool alone notices; the other has nothing to do.
  for (ServerPool* pool : {two.second.get(), two.first.get()}) {
    two.servers->weights = "its own";
    pool->sample({}, 0);
    two.sample(4);
  }
  CHECK(two.servers->loads == Loads{{"1", 4}});
}

TEST_CASE("a server that was gone is given the weights before it is asked, once") {
  const Two two;
  two.use("1");
  two.sample(4);
  const auto while_down = [&](const std::function<void()>& then) {
    two.servers->down = true;
    std::thread back([&] {
      for (ServerPool* pool : {two.first.get(), two.second.get()})  // each notices
        while (pool->num_alive() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(two.servers->mutex);
      two.servers->down = false;
      two.servers->weights = "its own";
    });
    then();
    back.join();
  };
  while_down([&] { two.sample(4); });
  CHECK(two.servers->loads == Loads{{"1", 2}});
  // Weights are given while it is gone.
  while_down([&] {
    two.use("2");
    two.sample(4);
  });
  CHECK(two.servers->loads == Loads{{"1", 2}, {"2", 1}});
  CHECK(two.servers->sampled_with_others == 0);
}

TEST_CASE("a load that fails is told to whoever asks, and tried again") {
  const Two two;
  for (ServerPool* pool : {two.first.get(), two.second.get()}) {
    two.servers->refusal = "no room";
    CHECK_THROWS_WITH_AS(pool->load(0, {"1", "/1"}, 0), "no room", DataError);
  }
  CHECK(two.servers->loads.empty());
  two.use("1");
  two.servers->refusal = "no room";
  two.sample(4);
  CHECK(two.servers->loads == Loads{{"1", 1}});
}

TEST_CASE("a busy server is asked again for longer than one that fails, and the user is told") {
  const Two two;
  two.use("1");
  two.servers->busy = ServerPool::kTries + 1;
  CHECK(two.first->sample({}, 0).size() == 1);
  CHECK(two.servers->busy == 0);
  const std::vector<std::string> news = two.first->take_news();
  REQUIRE(news.size() == 2);
  CHECK(news[0] ==
        "a server is busy (/sample: status 429 too many); waiting up to 15 s for it");  // no key
  CHECK(news[1].starts_with("a server takes requests again, after "));
  CHECK_FALSE(two.first->all_gone());
}

TEST_CASE("a server that stays busy ends the sampling after the time to wait") {
  const Two two;
  PoolOptions options = two.options(nullptr);
  options.wait_seconds = 1 - (ServerPool::kTries - 1) * ServerPool::kMostWait;  // 1 s in all
  options.wait_key = "a.key";
  ServerPool pool(options, std::make_unique<Fake>(two.servers));
  two.servers->weights = "1";
  pool.set_weights({"1", "/1"});
  two.servers->busy = 1000;
  CHECK_THROWS_WITH_AS(pool.sample({}, 0),
                       "a server took no request in 1 s (a.key): /sample: status 429 too many",
                       NoServer);
  CHECK(two.servers->busy > 990);
}

TEST_CASE("stopping ends the wait for a load by another process") {
  class Never : public WeightsLoader {
   public:
    int64_t load(size_t, const RemoteWeights&, int64_t) override {
      begun = true;
      while (!stopped_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw RunError("stopped");
    }
    void stop() override { stopped_ = true; }
    std::atomic<bool> begun{false};

   private:
    std::atomic<bool> stopped_{false};
  };
  const Two two;
  const auto never = std::make_shared<Never>();
  ServerPool pool(two.options(never), std::make_unique<Fake>(two.servers));
  pool.set_weights({"1", "/1"});
  std::thread samples([&] { CHECK_THROWS_WITH_AS(pool.sample({}, 0), "stopped", RunError); });
  while (!never->begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pool.stop();
  samples.join();
}
