#include "temper/roles/weights_sender.h"

#include "temper/metrics/trace.h"
#include "temper/roles/wire.h"

namespace temper::roles {

using generate::remote::HttpClient;
using generate::remote::HttpFailure;

WeightsSender::WeightsSender(const generate::remote::PoolOptions& ranks,
                             std::function<void(size_t)> failed)
    : timeout_seconds_(ranks.timeout_seconds), failed_(std::move(failed)) {
  for (const auto& server : ranks.servers) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->server = server;
  }
  for (size_t i = 0; i < ranks_.size(); ++i)
    ranks_[i]->thread = std::thread([this, i] { work(i); });
}

WeightsSender::~WeightsSender() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const auto& rank : ranks_)
      if (rank->busy) rank->busy->stop();
  }
  changed_.notify_all();
  for (const auto& rank : ranks_) rank->thread.join();
}

void WeightsSender::send(int64_t version, std::shared_ptr<const std::string> bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& rank : ranks_)
    if (!rank->gone) rank->waiting.emplace_back(version, bytes);
  changed_.notify_all();
}

void WeightsSender::leave_out(size_t place) {
  const std::lock_guard lock(mutex_);
  Rank& rank = *ranks_.at(place);
  forget(rank);
  if (rank.busy) rank.busy->stop();
}

void WeightsSender::forget(Rank& rank) {
  rank.gone = true;
  rank.waiting.clear();
}

void WeightsSender::work(size_t place) {
  trace::name_thread("sending weights");
  Rank& rank = *ranks_[place];
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !rank.waiting.empty(); });
    if (ending_) return;
    const Message message = std::move(rank.waiting.front());
    rank.waiting.pop_front();
    // A connection of its own: one that lay idle could have ended.
    HttpClient http(rank.server.url, rank.server.api_key, timeout_seconds_);
    rank.busy = &http;
    lock.unlock();
    bool sent = false;
    try {
      const trace::Span span("weights for a rank");
      http.post_bytes(std::string(kWeights) + "/" + std::to_string(message.first), message.second);
      sent = true;
    } catch (const HttpFailure&) {
      // It is gone, or will be.
    }
    lock.lock();
    rank.busy = nullptr;
    if (ending_) return;
    if (sent) continue;
    forget(rank);
    lock.unlock();
    return failed_(place);
  }
}

}  // namespace temper::roles
