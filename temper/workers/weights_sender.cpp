#include "temper/workers/weights_sender.h"

#include "temper/metrics/trace.h"
#include "temper/workers/wire.h"

namespace temper::workers {

using http::Client;

WeightsSender::WeightsSender(const generate::remote::PoolOptions& ranks,
                             std::function<void(size_t)> failed)
    : timeout_seconds_(ranks.timeout_seconds), failed_(std::move(failed)) {
  const WorkQueueOptions options{.at_end = WorkQueueOptions::AtEnd::kDrop,
                                 .on_start = [] { trace::name_thread("sending weights"); }};
  for (const auto& server : ranks.servers)
    ranks_.push_back({server, std::make_unique<WorkQueue>(options)});
}

WeightsSender::~WeightsSender() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  for (Rank& rank : ranks_) stop(rank);
}

void WeightsSender::send(int64_t version, std::shared_ptr<const std::string> bytes) {
  for (size_t place = 0; place < ranks_.size(); ++place)
    ranks_[place].queue->run([this, place, version, bytes] { send_to(place, version, bytes); });
}

void WeightsSender::leave_out(size_t place) {
  const std::lock_guard lock(mutex_);
  stop(ranks_.at(place));
}

void WeightsSender::stop(Rank& rank) {
  rank.gone = true;
  rank.queue->stop();
  if (rank.busy) rank.busy->stop();
}

void WeightsSender::send_to(size_t place, int64_t version,
                            const std::shared_ptr<const std::string>& bytes) {
  Rank& rank = ranks_[place];
  // A connection of its own: one that lay idle could have ended.
  http::Client http(rank.server.url, rank.server.api_key, timeout_seconds_);
  {
    const std::lock_guard lock(mutex_);
    if (rank.gone) return;
    rank.busy = &http;
  }
  bool sent = false;
  try {
    const trace::Span span("weights for a rank");
    http.post_bytes(std::string(kWeights) + "/" + std::to_string(version), bytes);
    sent = true;
  } catch (const std::exception&) {
    // The rank is gone, or will be.
  }
  {
    const std::lock_guard lock(mutex_);
    rank.busy = nullptr;
    if (ending_ || sent) return;
    stop(rank);
  }
  failed_(place);
}

}  // namespace temper::workers
