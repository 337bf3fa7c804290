#include "temper/http/pending_answer.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "temper/http/connection.h"
#include "temper/http/text.h"

namespace temper::http {
namespace {

constexpr int64_t kFull = int64_t{256} << 10;  // unsent bytes of a stream

}  // namespace

PendingAnswer::PendingAnswer(std::shared_ptr<Hub> hub, std::weak_ptr<Connection> connection,
                             RequestHead head, bool is_http10, std::string body)
    : hub_(std::move(hub)), connection_(std::move(connection)), is_http10_(is_http10) {
  head_ = std::move(head);
  body_ = std::move(body);
}

template <class Call>
void PendingAnswer::post(Call call) {
  if (gone_ || ended_) return;
  boost::asio::post(hub_->io, [self = shared_from_this(), call = std::move(call)]() mutable {
    const auto connection = self->connection_.lock();
    if (!connection || self->gone_ || self->ended_) return;
    try {
      call(*connection);
    } catch (...) {
      connection->close();
    }
  });
}

void PendingAnswer::drop_body() {
  const int64_t size = static_cast<int64_t>(body_.size());
  std::string().swap(body_);
  hub_->released_bytes += size;
  post([](Connection& c) { c.uncount_body(); });
}

void PendingAnswer::answer(Answer answer) {
  post([answer = std::move(answer)](Connection& c) { c.answer(answer); });
}

void PendingAnswer::begin_stream(std::string type, std::string heartbeat, double seconds) {
  post([type = std::move(type), heartbeat = std::move(heartbeat), seconds](Connection& c) {
    c.begin_stream(type, heartbeat, seconds);
  });
}

void PendingAnswer::send(std::string part) {
  if (part.empty()) return;
  const int64_t length = static_cast<int64_t>(part.size());
  std::string text = is_http10_ ? std::move(part) : chunk_of(part);
  unsent_ += static_cast<int64_t>(text.size());
  post(
      [text = std::move(text), length](Connection& c) mutable { c.send(std::move(text), length); });
}

void PendingAnswer::end_stream(bool whole) {
  post([whole](Connection& c) { c.end_stream(whole); });
}

bool PendingAnswer::is_full() const { return unsent_ > kFull; }

void PendingAnswer::on_change(std::function<void()> changed) {
  bool missed = false;
  {
    const std::lock_guard lock(mutex_);
    missed = gone_ && changed;
    if (!ended_ || !changed) changed_ = changed;
  }
  if (missed) changed();
}

void PendingAnswer::sent(size_t bytes) {
  const int64_t before = unsent_.fetch_sub(static_cast<int64_t>(bytes));
  if (before > kFull && before - static_cast<int64_t>(bytes) <= kFull) tell();
}

void PendingAnswer::end(bool gone) {
  gone_ = gone_ || gone;
  try {
    if (gone) tell();
  } catch (...) {
    // Whoever answers fails to notice that its client has gone.
  }
  ended_ = true;
  const std::lock_guard lock(mutex_);
  changed_ = nullptr;
}

void PendingAnswer::tell() {
  std::function<void()> changed;
  {
    const std::lock_guard lock(mutex_);
    changed = changed_;
  }
  if (changed) changed();
}

}  // namespace temper::http
