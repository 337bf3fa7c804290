#include "temper/generate/inbox.h"

#include <utility>

namespace temper::generate {

void Inbox::put(Message message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
  }
  arrived_.notify_all();
}

std::vector<Inbox::Message> Inbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

bool Inbox::empty() const {
  const std::lock_guard lock(mutex_);
  return messages_.empty();
}

bool Inbox::wait(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return arrived_.wait_for(lock, timeout, [this] { return !messages_.empty(); });
}

}  // namespace temper::generate
