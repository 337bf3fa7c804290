// One connection of a Server. All functions run on the connections' thread.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "temper/http/request_head.h"
#include "temper/http/server.h"

namespace temper::http {

using Clock = std::chrono::steady_clock;

class Connection;

// The state that all connections of a server share.
struct Hub {
  Hub(Handler& h, const Limits& l) : handler(h), limits(l) {}
  boost::asio::io_context io{1};
  Handler& handler;
  Limits limits;
  std::list<std::shared_ptr<Connection>> connections;
  std::atomic<int64_t> num_connections{0}, buffered_bytes{0};
  std::atomic<int64_t> released_bytes{0};  // freed bodies and answers since memory was returned
  bool stopping = false;
};

class PendingAnswer;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class State { kHead, kBody, kWork, kLinger, kClosed };

  // surplus: the connection is beyond the limits, so only the head of its request is read.
  Connection(std::shared_ptr<Hub> hub, boost::asio::ip::tcp::socket socket, std::string peer,
             bool surplus);
  ~Connection();

  void start();
  // Ends what is past its deadline, and sends a heartbeat where one is due.
  void look(Clock::time_point now);
  // Accepts no more requests; what is being answered goes on.
  void stop();
  void close();

  State state() const { return state_; }
  const std::string& peer() const { return peer_; }
  // How readily the connection gives its place to a new one: 0 not at all, 1, or 2 first; and since
  // when it waits.
  int idleness(Clock::time_point now) const;
  Clock::time_point since() const { return since_; }
  // Where the hub has it.
  void listed_at(std::list<std::shared_ptr<Connection>>::iterator place) { listed_ = place; }

  // What PendingAnswer asks for.
  void answer(const Answer& answer);
  void begin_stream(const std::string& type, std::string heartbeat, double seconds);
  // text: a part of a stream as it goes over the wire; length: bytes of the body in it.
  void send(std::string text, int64_t length);
  void end_stream(bool whole);
  void uncount_body();

 private:
  void read();
  void on_read(boost::beast::error_code error, size_t bytes);
  void on_end_of_input();
  void advance();
  bool parse_head();
  bool parse_body();
  void on_head();
  void on_request();
  bool count_body();
  void refuse(int status, const std::string& message);
  template <class Call>
  bool survives(Call call);
  void report_done() noexcept;

  void put(std::string text);
  void push(std::string text);
  void write();
  void on_write(boost::beast::error_code error, size_t bytes);
  void finish();
  void linger();
  void wait(double seconds);

  std::shared_ptr<Hub> hub_;
  boost::asio::ip::tcp::socket socket_;
  const std::string peer_;
  const bool surplus_;
  State state_ = State::kHead;
  Clock::time_point since_ = Clock::now();  // when this state began
  Clock::time_point deadline_ = Clock::time_point::max();
  boost::beast::flat_buffer buffer_;
  std::unique_ptr<RequestParser> parser_;
  RequestHead head_;
  Admission admission_;
  bool keeps_ = true;  // the connection stays after this answer
  bool is_http10_ = false;
  bool begun_ = false;  // a head's first byte has come
  bool reading_ = false, writing_ = false, input_ended_ = false;
  int64_t counted_ = 0;                      // of hub_->buffered_bytes
  std::shared_ptr<PendingAnswer> exchange_;  // while it is being answered
  std::deque<std::string> out_;
  size_t offset_ = 0;                      // bytes of out_.front() that were sent
  Clock::time_point sent_ = Clock::now();  // when the last bytes were sent
  Clock::time_point write_deadline_ = Clock::time_point::max();
  bool ends_ = false;  // out_ holds the rest of the answer
  bool streams_ = false;
  std::string heartbeat_;
  double heartbeat_seconds_ = 0;
  int status_ = 0;
  int64_t answered_bytes_ = 0;
  std::optional<std::list<std::shared_ptr<Connection>>::iterator> listed_;
};

}  // namespace temper::http
