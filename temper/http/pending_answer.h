// The answer of a connection's request, while it is being prepared.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "temper/http/server.h"

namespace temper::http {

class Connection;
struct Hub;

// The Exchange of a request, as handlers use it on other threads.
class PendingAnswer : public Exchange, public std::enable_shared_from_this<PendingAnswer> {
 public:
  PendingAnswer(std::shared_ptr<Hub> hub, std::weak_ptr<Connection> connection, RequestHead head,
                bool is_http10, std::string body);

  void drop_body() override;
  void answer(Answer answer) override;
  void begin_stream(std::string type, std::string heartbeat, double seconds) override;
  void send(std::string part) override;
  void end_stream(bool whole) override;
  bool is_full() const override;
  bool is_gone() const override { return gone_; }
  void on_change(std::function<void()> changed) override;

  // On the connections' thread: bytes that are to be sent, in addition to those of send(); bytes
  // that were sent; the end of the answer, or of the connection.
  void add(size_t bytes) { unsent_ += static_cast<int64_t>(bytes); }
  void sent(size_t bytes);
  void end(bool gone);

 private:
  template <class Call>
  void post(Call call);
  void tell();

  std::shared_ptr<Hub> hub_;
  std::weak_ptr<Connection> connection_;
  const bool is_http10_;
  std::atomic<int64_t> unsent_{0};
  std::atomic<bool> gone_{false}, ended_{false};
  std::mutex mutex_;
  std::function<void()> changed_;
};

}  // namespace temper::http
