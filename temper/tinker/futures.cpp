#include "temper/tinker/futures.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "temper/base/clock.h"
#include "temper/base/json.h"
#include "temper/serve/answering.h"
#include "temper/serve/reply_json.h"

namespace temper::tinker {
namespace {

constexpr const char* kProtobufType = "application/x-protobuf";

serve::Answer pending(const std::string& id) {
  return {408,
          dump_json(Json{{"type", "try_again"}, {"request_id", id}, {"queue_state", "active"}})};
}

serve::Answer failure(const std::string& message, FailureCategory category) {
  return {200,
          dump_json(Json{{"error", message},
                         {"category", category == FailureCategory::kUser ? "user" : "server"}})};
}

}  // namespace

Futures::Futures(const Limits& limits) : limits_(limits), name_(serve::new_id("") + "-") {}

std::string Futures::open() {
  const std::lock_guard lock(mutex_);
  std::string id = name_ + std::to_string(++opened_);
  futures_[id].since = steady_seconds();
  return id;
}

void Futures::resolve(const std::string& id, std::string body, bool is_protobuf) {
  serve::Answer answer{200, std::move(body)};
  if (is_protobuf) answer.type = kProtobufType;
  finish(id, std::move(answer));
}

void Futures::fail(const std::string& id, const std::string& message, FailureCategory category) {
  finish(id, failure(message, category));
}

void Futures::finish(const std::string& id, serve::Answer answer) {
  Sends sends;
  {
    const std::lock_guard lock(mutex_);
    const auto found = futures_.find(id);
    if (found == futures_.end() || found->second.done) return;
    Future& future = found->second;
    future.done = true;
    future.since = steady_seconds();
    future.answer = std::move(answer);
    bytes_ += static_cast<int64_t>(future.answer.body.size());
    future.place = order_.insert(order_.end(), id);
    const auto [begin, end] = waiting_.equal_range(id);
    for (auto w = begin; w != end; ++w)
      sends.emplace_back(std::move(w->second.send), future.answer);
    future.fetched = begin != end;
    waiting_.erase(begin, end);
    while ((bytes_ > limits_.bytes || order_.size() > limits_.results) && order_.size() > 1)
      drop(futures_.find(order_.front()));
  }
  for (auto& [send, what] : sends) send(std::move(what));
}

void Futures::drop(std::map<std::string, Future>::iterator future) {
  bytes_ -= static_cast<int64_t>(future->second.answer.body.size());
  if (future->second.done) order_.erase(future->second.place);
  futures_.erase(future);
}

// An id that this server gave is one whose result was dropped.
serve::Answer Futures::missing(const std::string& id) const {
  uint64_t number = 0;
  if (id.starts_with(name_))
    std::from_chars(id.data() + name_.size(), id.data() + id.size(), number);
  if (number >= 1 && number <= opened_ && id == name_ + std::to_string(number))
    return serve::error_answer(410, "the result of this request is not kept any more");
  return serve::error_answer(
      404, "request_id: unknown; results do not outlive the server that computed them");
}

void Futures::retrieve(const std::string& id, Send send) {
  serve::Answer answer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = futures_.find(id);
    if (found == futures_.end()) {
      answer = missing(id);
    } else if (found->second.done) {
      if (!found->second.fetched) found->second.since = steady_seconds();
      found->second.fetched = true;
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
