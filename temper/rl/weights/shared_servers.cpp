#include "temper/rl/weights/shared_servers.h"

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/dist/peer_watch.h"
#include "temper/generate/remote/server_check.h"
#include "temper/http/client.h"
#include "temper/serve/server.h"
#include "temper/workers/rank_server.h"
#include "temper/workers/role_ranks.h"

namespace temper::rl {

using generate::remote::PoolOptions;
using generate::remote::RemoteWeights;
using generate::remote::ServerPool;
using http::Client;
using http::Failure;

namespace {

// POST: the arguments of ServerPool::load(), as {"server", "version", "path", "adapter", "lost"};
// the answer is {"load"}, or {"failure", "unreachable", "status", "retry_after"} where the server
// failed.
constexpr const char* kLoad = "/load";

// Where the server cannot load, the rank that asked is told why: it tries again, or elsewhere.
std::string load(ServerPool& pool, const std::string& body) {
  const Json asked = parse_json(body, "another rank");
  const RemoteWeights weights{asked.at("version").get<std::string>(),
                              asked.at("path").get<std::string>(), asked.at("adapter").get<bool>()};
  try {
    return dump_json({{"load", pool.load(asked.at("server").get<size_t>(), weights,
                                         asked.at("lost").get<int64_t>())}});
  } catch (const http::Failure& e) {
    return dump_json({{"failure", e.what()},
                      {"unreachable", e.unreachable},
                      {"status", e.status},
                      {"retry_after", e.retry_after ? Json(*e.retry_after) : Json()}});
  } catch (const DataError& e) {
    return dump_json({{"failure", e.what()}, {"unreachable", false}, {"status", 0}});
  }
}

// Asks rank 0. A pool asks for one load of a server at a time: each server has a connection.
class RankZero : public generate::remote::WeightsLoader {
 public:
  RankZero(const Json& where, size_t servers, double timeout_seconds) {
    const auto url = http::parse_url(where.at("url").get<std::string>());
    const auto key = where.at("key").get<std::string>();
    for (size_t i = 0; i < servers; ++i)
      clients_.push_back(std::make_unique<http::Client>(url, key, timeout_seconds));
  }
  int64_t load(size_t server, const RemoteWeights& weights, int64_t lost) override {
    check(!stopped_, "the run is ending");
    const std::string body = dump_json({{"server", server},
                                        {"version", weights.version},
                                        {"path", weights.path},
                                        {"adapter", weights.adapter},
                                        {"lost", lost}});
    const Json answer = parse_json(ask(*clients_.at(server), body), "rank 0");
    if (answer.contains("failure")) {
      const Json retry = answer.value("retry_after", Json());
      throw http::Failure(answer.at("failure").get<std::string>(),
                          answer.at("unreachable").get<bool>(), answer.at("status").get<int>(),
                          retry.is_number() ? std::optional(retry.get<double>()) : std::nullopt);
    }
    return answer.at("load").get<int64_t>();
  }
  void stop() override {
    stopped_ = true;
    for (const auto& client : clients_) client->stop();
  }

 private:
  // A connection that was idle may end just when it is used; to ask twice does no harm.
  std::string ask(http::Client& client, const std::string& body) const {
    for (bool again = true;; again = false) {
      try {
        return client.post(kLoad, body);
      } catch (const http::Failure& e) {
        check(again && e.unreachable && !stopped_,
              "rank 0, which has the servers load weights, has exited or does not answer; its "
              "messages say why (",
              e.what(), ")");
      }
    }
  }

  std::vector<std::unique_ptr<http::Client>> clients_;
  std::atomic<bool> stopped_{false};
};

serve::ServerOptions options_of(const dist::Mesh& mesh, size_t servers,
                                const std::shared_ptr<ServerPool>& pool) {
  check(mesh.watch != nullptr, "rollout.server: the ranks' addresses are unknown");
  serve::ServerOptions o;
  o.host = mesh.watch->address();
  o.port = 0;
  o.api_key = workers::random_key();
  o.most_threads = static_cast<int64_t>(servers) * mesh.world->size();
  o.routes[kLoad] = [pool](const std::string&, const std::string& body) {
    return load(*pool, body);
  };
  return o;
}

}  // namespace

// Answers the other ranks.
class SharedServers::Loading {
 public:
  explicit Loading(serve::ServerOptions options) : server_(std::move(options), nullptr) {
    server_.bind();
    thread_ = std::thread([this] {
      server_.listen();
      ended_ = true;
    });
  }
  ~Loading() {
    // Repeated, as the server may not have begun to listen yet.
    for (; !ended_; std::this_thread::sleep_for(std::chrono::milliseconds(5))) server_.stop();
    thread_.join();
  }
  Json where() const { return {{"url", server_.address()}, {"key", server_.api_key()}}; }

 private:
  serve::Server server_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

namespace {

// Throws for a server of another kind or model; one that does not answer may come back. Returns
// warnings about the others, on rank 0.
std::vector<std::string> refuse_wrong_servers(const RlConfig& config, const train::Policy& policy,
                                              dist::Group& world) {
  namespace remote = generate::remote;
  const generate::ServerSection& section = config.rollout.server;
  std::string wrong;
  std::vector<std::string> warnings;
  if (world.rank() == 0) {
    const remote::ServerNeeds needs =
        remote::server_needs(section, config.rollout, policy.lora.has_value(),
                             policy.model->vocab_size, policy.tokenizer.get());
    for (const remote::ServerReport& report : remote::check_servers(section, needs)) {
      if (wrong.empty() && report.state == remote::ServerReport::State::kWrong)
        wrong = str(config.where("rollout.server.urls"), ": ", report.url, ": ", report.reason);
      if (!report.warning.empty())
        warnings.push_back(str("rollout.server: ", report.url, ": ", report.warning));
    }
  }
  if (world.size() > 1) wrong = world.all_gather(wrong)[0];
  check<ConfigError>(wrong.empty(), wrong);
  return warnings;
}

}  // namespace

SharedServers::SharedServers(const RlConfig& config, const train::Policy& policy,
                             const dist::Mesh& mesh) {
  const generate::ServerSection& section = config.rollout.server;
  warnings_ = refuse_wrong_servers(config, policy, *mesh.world);
  const int64_t vocabulary = policy.model->vocab_size;
  PoolOptions options = generate::remote::pool_options(section);
  const size_t servers = options.servers.size();
  const bool leads = mesh.world->rank() == 0;
  const auto make = [&] {
    pool_ = std::make_shared<ServerPool>(options,
                                         generate::remote::make_protocol(section.kind, vocabulary));
  };
  const bool shares =
      mesh.world->size() > 1 && section.sync == generate::ServerSection::Sync::kDisk;
  if (leads || !shares) make();
  if (!shares) return;
  if (leads) loading_ = std::make_unique<Loading>(options_of(mesh, servers, pool_));
  const Json mine = leads ? loading_->where() : Json::object();
  const std::string where = mesh.world->all_gather(dump_json(mine))[0];
  if (leads) return;
  options.loader = std::make_shared<RankZero>(parse_json(where, "rank 0"), servers,
                                              workers::longest_wait_seconds(config.mesh));
  make();
}

SharedServers::~SharedServers() {
  pool_->stop();  // ends the waiting of other ranks as well
}

}  // namespace temper::rl
