#include "temper/serve/routes/heartbeats.h"

namespace temper::serve {
namespace {

constexpr double kHeartbeatSeconds = 2;

}  // namespace

void Heartbeats::send(const std::shared_ptr<http::Exchange>& exchange, bool is_leader) {
  if (is_leader) options_.on_leader(true);
  exchange->begin_stream("text/plain", ".", kHeartbeatSeconds);
  exchange->send(".");
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return exchange->end_stream(true);
    clients_.push_back(exchange);
  }
  exchange->on_change([this, is_leader, waits = exchange.get()] {
    if (!waits->is_gone()) return;
    if (is_leader) options_.on_leader(false);
    const std::lock_guard lock(mutex_);
    std::erase_if(clients_, [&](const auto& one) { return one.get() == waits; });
  });
}

void Heartbeats::stop() {
  std::vector<std::shared_ptr<http::Exchange>> ended;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    ended.swap(clients_);
  }
  for (const auto& one : ended) one->end_stream(true);
}

}  // namespace temper::serve
