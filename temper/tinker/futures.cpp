#include "temper/tinker/futures.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/clock.h"
#include "temper/base/json.h"
#include "temper/serve/answering.h"
#include "temper/serve/reply_json.h"
#include "temper/tinker/wire.h"

namespace temper::tinker {
namespace {

constexpr const char* kProtobufType = "application/x-protobuf";
constexpr size_t kMostDropped = size_t{1} << 16;  // results that are known to have been there

http::Answer pending(const std::string& id) {
  return {408,
          dump_json(Json{{"type", "try_again"}, {"request_id", id}, {"queue_state", "active"}})};
}

http::Answer failure(const std::string& message, FailureCategory category) {
  return {200,
          dump_json(Json{{"error", message},
                         {"category", category == FailureCategory::kUser ? "user" : "server"}})};
}

}  // namespace

Futures::Futures(const Limits& limits) : limits_(limits) {}

std::string Futures::open(const Asker& asker) {
  std::string id = serve::new_id("");
  const std::lock_guard lock(mutex_);
  Future& future = futures_[id];
  future.asker = asker;
  future.since = steady_seconds();
  return id;
}

void Futures::resolve(const std::string& id, std::string body, Kind kind) {
  http::Answer answer{200, std::move(body)};
  if (kind != Kind::kJson) answer.type = kProtobufType;
  if (kind == Kind::kSparseProtobuf) {
    answer.body = compress_zstd(answer.body);
    answer.headers.emplace_back("Content-Encoding", "zstd");
  }
  finish(id, std::move(answer));
}

void Futures::fail(const std::string& id, const std::string& message, FailureCategory category) {
  finish(id, failure(message, category));
}

void Futures::finish(const std::string& id, http::Answer answer) {
  Sends sends;
  {
    const std::lock_guard lock(mutex_);
    const auto found = futures_.find(id);
    if (found == futures_.end() || found->second.done) return;
    Future& future = found->second;
    future.done = true;
    future.since = steady_seconds();
    future.answer = std::move(answer);
    add(future, id);
    const auto [begin, end] = waiting_.equal_range(id);
    for (auto w = begin; w != end; ++w)
      sends.emplace_back(std::move(w->second.send), future.answer);
    if (begin != end) set_fetched(future);
    waiting_.erase(begin, end);
    while ((held_.bytes > limits_.bytes || held_.results > limits_.results) && held_.results > 1)
      drop(futures_.find(to_drop()));
  }
  for (auto& [send, what] : sends) send(std::move(what));
}

// A result that was not fetched yet.
void Futures::add(Future& future, const std::string& id) {
  Owned& owned = owned_[future.asker.owner];
  Results& results = owned.sessions[future.asker.session];
  const auto bytes = static_cast<int64_t>(future.answer.body.size());
  for (Held* held : {&held_, &owned.held, &results.held}) {
    held->bytes += bytes;
    ++held->results;
  }
  future.place = results.order.insert(results.order.end(), id);
}

void Futures::set_fetched(Future& future) {
  if (future.fetched) return;
  const std::string id = *future.place;
  take_out(future);
  held_.bytes += static_cast<int64_t>(future.answer.body.size());
  ++held_.results;
  future.fetched = true;
  future.place = fetched_.insert(fetched_.end(), id);
}

void Futures::take_out(Future& future) {
  const auto bytes = static_cast<int64_t>(future.answer.body.size());
  held_.bytes -= bytes;
  --held_.results;
  if (future.fetched) {
    fetched_.erase(future.place);
    return;
  }
  const auto owned = owned_.find(future.asker.owner);
  const auto results = owned->second.sessions.find(future.asker.session);
  results->second.order.erase(future.place);
  for (Held* held : {&owned->second.held, &results->second.held}) {
    held->bytes -= bytes;
    --held->results;
  }
  if (results->second.order.empty()) owned->second.sessions.erase(results);
  if (owned->second.sessions.empty()) owned_.erase(owned);
}

void Futures::drop(std::map<std::string, Future>::iterator future) {
  take_out(future->second);
  dropped_[future->first] = future->second.asker.owner;
  dropped_order_.push_back(future->first);
  if (dropped_order_.size() > kMostDropped) {
    dropped_.erase(dropped_order_.front());
    dropped_order_.pop_front();
  }
  futures_.erase(future);
}

double Futures::share_of(const Held& held) const {
  return static_cast<double>(held.bytes) / static_cast<double>(limits_.bytes) +
         static_cast<double>(held.results) / static_cast<double>(limits_.results);
}

std::string Futures::to_drop() const {
  if (!fetched_.empty()) return fetched_.front();
  const auto less = [this](const auto& a, const auto& b) {
    return share_of(a.second.held) < share_of(b.second.held);
  };
  const Owned& owned = std::max_element(owned_.begin(), owned_.end(), less)->second;
  return std::max_element(owned.sessions.begin(), owned.sessions.end(), less)->second.order.front();
}

http::Answer Futures::missing(const std::string& owner, const std::string& id) const {
  const auto dropped = dropped_.find(id);
  if (dropped != dropped_.end() && dropped->second == owner)
    return serve::error_answer(410, "the result of this request is not kept any more");
  return serve::error_answer(
      404, "request_id: unknown; results do not outlive the server that computed them");
}

void Futures::retrieve(const std::string& owner, const std::string& id, Send send) {
  http::Answer answer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = futures_.find(id);
    if (found == futures_.end() || found->second.asker.owner != owner) {
      answer = missing(owner, id);
    } else if (found->second.done) {
      if (!found->second.fetched) found->second.since = steady_seconds();
      set_fetched(found->second);
      answer = found->second.answer;
    } else if (waiting_.size() >= limits_.waiting) {
      answer = pending(id);
    } else {
      waiting_.emplace(id, Waiting{std::move(send), steady_seconds() + limits_.hold_seconds});
      return;
    }
  }
  send(std::move(answer));
}

bool Futures::is_open(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = futures_.find(id);
  return found != futures_.end() && found->second.asker.owner == owner && !found->second.done;
}

void Futures::tick(double now) {
  Sends sends;
  {
    const std::lock_guard lock(mutex_);
    for (auto w = waiting_.begin(); w != waiting_.end();) {
      if (w->second.until > now) {
        ++w;
        continue;
      }
      sends.emplace_back(std::move(w->second.send), pending(w->first));
      w = waiting_.erase(w);
    }
    for (auto f = futures_.begin(); f != futures_.end();) {
      const Future& future = f->second;
      const double kept = future.fetched ? limits_.keep_seconds : limits_.unfetched_seconds;
      const auto next = std::next(f);
      if (future.done && now - future.since > kept) drop(f);
      f = next;
    }
  }
  for (auto& [send, what] : sends) send(std::move(what));
}

void Futures::close() {
  std::vector<std::string> open;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, future] : futures_)
      if (!future.done) open.push_back(id);
  }
  for (const std::string& id : open)
    fail(id, "the server has stopped; its saved weights are still there", FailureCategory::kServer);
}

}  // namespace temper::tinker
