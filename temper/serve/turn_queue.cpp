#include "temper/serve/turn_queue.h"

#include <utility>

namespace temper::serve {

void TurnQueue::run(const std::string& client, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    auto& waiting = clients_[client].waiting;
    if (waiting.empty()) turns_.push_back(client);
    waiting.push_back(std::move(job));
  }
  workers_.run([this] { run_next(); });
}

TurnQueue::Client* TurnQueue::next_client(std::string& name) {
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    Client& client = clients_.at(*turn);
    if (client.running >= most_of_client_) continue;
    name = std::move(*turn);
    turns_.erase(turn);
    return &client;
  }
  return nullptr;
}

// Each job that was added calls this once. One that finds nothing it may run leaves its job to
// whoever ends a job of that client, and who ends one may go on with another client's: so whoever
// leaves jobs of a client behind looks for more, full or not.
void TurnQueue::run_next() {
  std::unique_lock lock(mutex_);
  std::string name;
  Client* client = nullptr;
  while ((client = next_client(name))) {
    std::function<void()> job = std::move(client->waiting.front());
    client->waiting.pop_front();
    if (!client->waiting.empty()) turns_.push_back(name);
    ++client->running;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    client = &clients_.at(name);
    const bool more = !client->waiting.empty();
    if (--client->running == 0 && !more) clients_.erase(name);
    if (!more) return;
  }
}

std::deque<std::function<void()>> TurnQueue::take_waiting() {
  const std::lock_guard lock(mutex_);
  std::deque<std::function<void()>> out;
  for (const std::string& name : turns_) {
    Client& client = clients_.at(name);
    for (auto& job : client.waiting) out.push_back(std::move(job));
    client.waiting.clear();
    if (client.running == 0) clients_.erase(name);
  }
  turns_.clear();
  return out;
}

}  // namespace temper::serve
