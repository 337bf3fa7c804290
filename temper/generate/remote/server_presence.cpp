// Which servers of a pool answer, what its user is told of that, and who waits for them.
#include <algorithm>
#include <chrono>
#include <utility>

#include "temper/base/clock.h"
#include "temper/generate/remote/server_pool.h"

namespace temper::generate::remote {
namespace {

constexpr double kBetweenProbes = 0.3;  // seconds
constexpr double kProbeTimeout = 3;
constexpr double kRefusedWithin = 1;  // a request that takes longer was taken

std::chrono::duration<double> seconds_of(double seconds) {
  return std::chrono::duration<double>(seconds);
}

}  // namespace

void ServerPool::leave_out(size_t number) {
  Server& server = *servers_[number];
  const std::lock_guard lock(mutex_);
  server.alive = false;
  server.idle.clear();
  busy_since_.reset();  // it may be busy for a while when it comes back
  if (!options_.may_return)
    for (const auto& [client, since] : server.busy) client->stop();
  changed_.notify_all();
}

// Until the time is over; with `any`, also until a server answers.
void ServerPool::wait_for(size_t failed, double seconds, bool any) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, seconds_of(seconds), [&] {
    return stopping_ || (any && std::any_of(servers_.begin(), servers_.end(),
                                            [](const auto& s) { return s->alive; }));
  });
  check(!stopping_, servers_[failed]->about.name, ": the run is ending");
}

// Until a server answers, where one has before; false: none does now, and the time is over.
bool ServerPool::wait_for_any(double end) {
  std::unique_lock lock(mutex_);
  if (!answered_) return false;
  const auto any = [this] {
    return std::any_of(servers_.begin(), servers_.end(), [](const auto& s) { return s->alive; });
  };
  const double left = end - steady_seconds();
  if (left <= 0) return false;
  changed_.wait_for(lock, seconds_of(left), [&] { return stopping_ || any(); });
  check(!stopping_, names(), ": the run is ending");
  return any();
}

// Whether a server is at work on a request of this pool, which it did not refuse.
bool ServerPool::works_for_us(double now) const {
  return std::any_of(servers_.begin(), servers_.end(), [now](const auto& server) {
    return std::any_of(server->busy.begin(), server->busy.end(),
                       [now](const auto& entry) { return now - entry.second > kRefusedWithin; });
  });
}

double ServerPool::longest_wait(bool was_there) const {
  return (was_there ? options_.wait_seconds : 0) + (kTries - 1) * kMostWait;
}

std::string ServerPool::wait_hint() const {
  return options_.wait_key.empty() ? "" : " (" + options_.wait_key + ")";
}

// For so long, where servers are busy. False: none has taken a request for too long. As long as one
// works for this pool, what it has too much of may be the pool's own requests.
bool ServerPool::wait_while_busy(size_t number, double seconds, const std::string& why) {
  std::unique_lock lock(mutex_);
  const double now = steady_seconds();
  if (!busy_since_ || works_for_us(now)) busy_since_ = now;
  const double end = *busy_since_ + longest_wait(true);
  if (now >= end) return false;
  seconds = std::min(seconds, end - now);
  const std::string& name = servers_[number]->about.name;
  if (!told_busy_ && now + seconds - *busy_since_ > kRefusedWithin) {
    told_busy_ = *busy_since_;
    news_.push_back(str(name, " is busy (", why, "); waiting up to ", longest_wait(true),
                        " s for it", wait_hint()));
  }
  changed_.wait_for(lock, seconds_of(seconds), [this] { return stopping_; });
  check(!stopping_, name, ": the run is ending");
  return true;
}

void ServerPool::tell_answer(const Server& server) {
  const std::lock_guard lock(mutex_);
  answered_ = true;
  busy_since_.reset();
  if (!told_busy_) return;
  const auto seconds = static_cast<int64_t>(steady_seconds() - *told_busy_ + 0.5);
  told_busy_.reset();
  news_.push_back(str(server.about.name, " takes requests again, after ", seconds, " s"));
}

// Asks those that were left out whether they are back.
void ServerPool::probe() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const bool all_alive = std::all_of(servers_.begin(), servers_.end(),
                                       [](const auto& server) { return server->alive; });
    if (all_alive) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, seconds_of(kBetweenProbes), [this] { return stopping_; });
    for (const auto& server : servers_) {
      if (server->alive || stopping_) continue;
      lock.unlock();
      const bool back = answers(*server);
      lock.lock();
      server->alive = back;
      back ? tell_back(*server) : tell_gone(*server);
      if (back) changed_.notify_all();
    }
  }
}

void ServerPool::tell_gone(Server& server) {
  if (server.gone_since) return;
  server.gone_since = steady_seconds();
  const bool alone = std::none_of(servers_.begin(), servers_.end(),
                                  [](const auto& other) { return other->alive; });
  news_.push_back(server.about.name + " does not answer; " +
                  (alone ? str("waiting up to ", longest_wait(answered_), " s for it",
                               answered_ ? wait_hint() : "")
                         : "the others go on without it"));
}

void ServerPool::tell_back(Server& server) {
  if (!server.gone_since) return;
  const auto seconds = static_cast<int64_t>(steady_seconds() - *server.gone_since + 0.5);
  server.gone_since.reset();
  news_.push_back(str(server.about.name, " answers again, after ", seconds, " s"));
}

std::vector<std::string> ServerPool::take_news() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

bool ServerPool::all_gone() {
  const std::lock_guard lock(mutex_);
  return told_busy_ || std::all_of(servers_.begin(), servers_.end(), [](const auto& server) {
           return server->gone_since.has_value();
         });
}

bool ServerPool::answers(const Server& server) const {
  try {
    http::Client(server.about.url, server.about.api_key, kProbeTimeout).get("/health");
    return true;
  } catch (const http::Failure& e) {
    return !e.unreachable;  // it may have no such route
  }
}

}  // namespace temper::generate::remote
