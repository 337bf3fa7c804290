#include "temper/http/connection.h"

#include <algorithm>
#include <utility>

#include "temper/base/ascii.h"
#include "temper/base/error.h"
#include "temper/http/pending_answer.h"
#include "temper/http/text.h"

namespace temper::http {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using std::chrono::duration;

// A chunk's head, or pipelined requests: what follows those stays with the client until they are
// answered.
constexpr size_t kMostUnparsed = size_t{64} << 10;
constexpr size_t kReadAtOnce = size_t{128} << 10;  // of a body
constexpr size_t kReadOfHead = 4096;
constexpr int64_t kFreeBytes = int64_t{64} << 10;  // of a body, which do not count as buffered
constexpr size_t kReserved = size_t{1} << 20;      // most bytes reserved for an announced length
constexpr double kLingerSeconds = 2, kSurplusSeconds = 2, kSecondsAfterStop = 5;
constexpr double kStandsStill = 5;  // seconds after which a body or a stream may lose its place

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(duration<double>(std::min(seconds, 1e8)));
}

double seconds_since(Clock::time_point then) {
  return duration<double>(Clock::now() - then).count();
}

}  // namespace

Connection::Connection(std::shared_ptr<Hub> hub, boost::asio::ip::tcp::socket socket,
                       std::string peer, bool surplus)
    : hub_(std::move(hub)), socket_(std::move(socket)), peer_(std::move(peer)), surplus_(surplus) {
  ++hub_->num_connections;
}

Connection::~Connection() { --hub_->num_connections; }

void Connection::start() {
  parser_ = std::make_unique<RequestParser>();
  wait(surplus_ ? kSurplusSeconds : hub_->limits.head_seconds);
  advance();
}

void Connection::wait(double seconds) { deadline_ = after(seconds); }

int Connection::idleness(Clock::time_point now) const {
  if (state_ == State::kHead || state_ == State::kLinger) return 2;
  const bool body = state_ == State::kBody && duration<double>(now - since_).count() > kStandsStill;
  const bool stalled = writing_ && duration<double>(now - sent_).count() > kStandsStill;
  return body || stalled ? 1 : 0;
}

void Connection::look(Clock::time_point now) {
  if (now > write_deadline_) return close();
  if (now > deadline_) {
    deadline_ = Clock::time_point::max();
    const bool silent = state_ == State::kLinger || (state_ == State::kHead && !begun_);
    return silent ? close() : refuse(408, "the request did not arrive in time");
  }
  const bool due = streams_ && !writing_ && !heartbeat_.empty() &&
                   duration<double>(now - sent_).count() >= heartbeat_seconds_;
  if (due) put(is_http10_ ? heartbeat_ : chunk_of(heartbeat_));
}

void Connection::stop() {
  if (state_ == State::kHead || state_ == State::kBody) return close();
  keeps_ = false;
}

// Throws nothing, as it is what remains to do after an exception.
void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  error_code ignored;
  socket_.close(ignored);
  uncount_body();
  if (const auto exchange = std::exchange(exchange_, nullptr)) {
    report_done();
    exchange->end(true);
  }
  if (listed_) hub_->connections.erase(*listed_);
  listed_.reset();
}

// --- what comes in

void Connection::read() {
  if (reading_ || state_ == State::kClosed || input_ended_) return;
  const bool body = state_ == State::kBody;
  const size_t room = body ? kReadAtOnce : kReadOfHead;
  // A waiting connection keeps no large buffer.
  if (!body && buffer_.size() == 0 && buffer_.capacity() > room) buffer_.shrink_to_fit();
  reading_ = true;
  socket_.async_read_some(
      buffer_.prepare(room),
      [self = shared_from_this()](error_code error, size_t bytes) { self->on_read(error, bytes); });
}

void Connection::on_read(error_code error, size_t bytes) try {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error) return on_end_of_input();
  buffer_.commit(bytes);
  advance();
} catch (...) {
  close();
}

// A client that shut down its sending side and waits for the answer looks like one that has left.
void Connection::on_end_of_input() {
  input_ended_ = true;
  if (state_ != State::kWork || !ends_) close();
}

void Connection::advance() {
  while (state_ != State::kClosed) {
    if (state_ == State::kWork && keeps_) {
      if (buffer_.size() > kMostUnparsed) return;  // finish() goes on
      break;
    }
    if (state_ == State::kWork || state_ == State::kLinger) {
      buffer_.consume(buffer_.size());
      break;
    }
    if (!(state_ == State::kHead ? parse_head() : parse_body())) break;
  }
  read();
}

// Returns true where the head is complete and was handled.
bool Connection::parse_head() {
  if (buffer_.size() == 0) return false;
  if (!begun_) {
    begun_ = true;
    since_ = Clock::now();
    if (!surplus_) wait(hub_->limits.head_seconds);
    parser_->header_limit(static_cast<uint32_t>(hub_->limits.header_bytes));
    parser_->body_limit(UINT64_MAX);  // on_head() has it
  }
  error_code error;
  const size_t used = parser_->put(buffer_.data(), error);
  const std::string_view head(static_cast<const char*>(buffer_.data().data()), used);
  // Other parsers read a continuation line as a header of its own.
  const bool folded = head.find("\r\n ") != head.npos || head.find("\r\n\t") != head.npos;
  buffer_.consume(used);
  if (error == http::error::need_more) return false;
  if (folded)
    refuse(400, "malformed HTTP request: a header of several lines");
  else if (error == http::error::header_limit)
    refuse(431,
           temper::str("the request's head has more than ", hub_->limits.header_bytes, " bytes"));
  else if (error)
    refuse(400, "malformed HTTP request: " + error.message());
  else if (parser_->is_header_done())
    on_head();
  return true;
}

bool Connection::parse_body() {
  if (parser_->is_done()) {
    on_request();
    return true;
  }
  if (buffer_.size() == 0) return false;
  error_code error;
  const size_t used = parser_->put(buffer_.data(), error);
  buffer_.consume(used);
  if (!count_body()) return true;
  const bool waits = error == http::error::need_more || (!error && used == 0);
  if (error == http::error::body_limit)
    refuse(413, temper::str("the request has more than ", admission_.most_body_bytes, " bytes"));
  else if (error && !waits)
    refuse(400, "malformed HTTP request: " + error.message());
  else if (waits && buffer_.size() > kMostUnparsed)
    refuse(400, "malformed HTTP request: a chunk's head is too long");
  else
    return !waits;
  return true;
}

// Returns true where the body, with what was received, fits beside the others.
bool Connection::count_body() {
  std::string& body = parser_->get().body();
  const size_t length = head_.content_length.value_or(0);
  if (body.size() > kReserved && body.capacity() < length) body.reserve(length);
  const int64_t counts = std::max(int64_t{0}, static_cast<int64_t>(body.size()) - kFreeBytes);
  hub_->buffered_bytes += counts - counted_;
  counted_ = counts;
  if (counts == 0 || hub_->buffered_bytes <= hub_->limits.buffered_bytes) return true;
  refuse(503, "the server is receiving too many large requests; retry later");
  return false;
}

void Connection::uncount_body() {
  hub_->buffered_bytes -= std::exchange(counted_, 0);
  hub_->released_bytes += static_cast<int64_t>(parser_ ? parser_->get().body().size() : 0);
}

void Connection::on_head() {
  is_http10_ = parser_->get().version() < 11;
  keeps_ = parser_->keep_alive() && !hub_->stopping;
  head_ = RequestHead();
  head_.peer = peer_;
  if (const std::string why = read_head(*parser_, head_); !why.empty())
    return refuse(400, "malformed HTTP request: " + why);
  if (!survives([&] { admission_ = hub_->handler.admit(head_); })) return;
  if (admission_.answer) {
    keeps_ = keeps_ && !head_.has_body;
    state_ = State::kWork;
    return answer(*admission_.answer);
  }
  if (surplus_)
    return refuse(503, "the server has as many connections as its limit allows; retry later");
  if (head_.content_length.value_or(0) > static_cast<uint64_t>(admission_.most_body_bytes))
    return refuse(413,
                  temper::str("the request has more than ", admission_.most_body_bytes, " bytes"));
  const std::string expects = ascii_lower(head_.header("expect"));
  if (!expects.empty() && expects != "100-continue")
    return refuse(417, "Expect: found " + for_log(expects) + ", expected 100-continue");
  const double rate = hub_->limits.body_bytes_per_second;
  wait(hub_->limits.body_seconds + static_cast<double>(head_.content_length.value_or(
                                       static_cast<uint64_t>(admission_.most_body_bytes))) /
                                       rate);
  state_ = State::kBody;
  parser_->body_limit(static_cast<uint64_t>(admission_.most_body_bytes));
  parser_->eager(true);
  if (!expects.empty() && head_.has_body && buffer_.size() == 0)
    put("HTTP/1.1 100 Continue\r\n\r\n");
}

void Connection::on_request() {
  state_ = State::kWork;
  deadline_ = Clock::time_point::max();
  exchange_ = std::make_shared<PendingAnswer>(hub_, shared_from_this(), head_, is_http10_,
                                              std::move(parser_->get().body()));
  survives([&] { admission_.handle(exchange_); });
}

// Returns false where the handler has thrown, which is answered 500.
template <class Call>
bool Connection::survives(Call call) {
  try {
    call();
    return true;
  } catch (const std::exception& e) {
    refuse(500, e.what());
  } catch (...) {
    refuse(500, "an error without a description");
  }
  return false;
}

void Connection::report_done() noexcept {
  try {
    hub_->handler.done(head_, status_, answered_bytes_, seconds_since(since_));
  } catch (...) {
    // It is said of an answer that is over.
  }
}

// --- what goes out

// Sends an error; the connection ends with it, as what follows in it is unknown.
void Connection::refuse(int status, const std::string& message) {
  keeps_ = false;
  state_ = State::kWork;
  answer(hub_->handler.refusal(status, message));
}

void Connection::answer(const Answer& answer) {
  if (state_ != State::kWork || ends_ || streams_) return;
  deadline_ = Clock::time_point::max();
  Headers headers = answer.headers;
  headers.insert(headers.end(), admission_.headers.begin(), admission_.headers.end());
  status_ = answer.status;
  ends_ = true;
  std::string text = response_head(answer.status, answer.type, headers, BodyEnd::kLength,
                                   answer.body.size(), keeps_);
  const bool has_body = head_.method != "HEAD" && answer.status != 204;
  if (has_body) answered_bytes_ = static_cast<int64_t>(answer.body.size());
  if (has_body) text += answer.body;
  put(std::move(text));
}

void Connection::begin_stream(const std::string& type, std::string heartbeat, double seconds) {
  if (state_ != State::kWork || ends_ || streams_) return;
  status_ = 200;
  streams_ = true;
  heartbeat_ = std::move(heartbeat);
  heartbeat_seconds_ = seconds;
  keeps_ = keeps_ && !is_http10_;
  Headers headers{{"Cache-Control", "no-cache"}};
  headers.insert(headers.end(), admission_.headers.begin(), admission_.headers.end());
  put(response_head(200, type, headers, is_http10_ ? BodyEnd::kClose : BodyEnd::kChunks, 0,
                    keeps_));
}

void Connection::end_stream(bool whole) {
  if (ends_) return;
  if (!whole) return close();
  if (!streams_) return;
  ends_ = true;
  if (!is_http10_) return put(chunk_of(""));
  if (out_.empty()) finish();
}

void Connection::send(std::string text, int64_t length) {
  answered_bytes_ += length;
  push(std::move(text));
}

void Connection::put(std::string text) {
  if (state_ == State::kClosed) return;
  if (exchange_) exchange_->add(text.size());
  push(std::move(text));
}

void Connection::push(std::string text) {
  if (state_ == State::kClosed) return;
  out_.push_back(std::move(text));
  if (!writing_) write();
}

void Connection::write() {
  const double seconds = hub_->limits.write_seconds;
  writing_ = true;
  sent_ = Clock::now();
  write_deadline_ = after(hub_->stopping ? std::min(seconds, kSecondsAfterStop) : seconds);
  const std::string& first = out_.front();
  socket_.async_write_some(boost::asio::buffer(first.data() + offset_, first.size() - offset_),
                           [self = shared_from_this()](error_code error, size_t bytes) {
                             self->on_write(error, bytes);
                           });
}

void Connection::on_write(error_code error, size_t bytes) try {
  writing_ = false;
  write_deadline_ = Clock::time_point::max();
  if (state_ == State::kClosed) return;
  if (error) return close();
  sent_ = Clock::now();
  offset_ += bytes;
  if (exchange_) exchange_->sent(bytes);
  if (offset_ == out_.front().size()) {
    hub_->released_bytes += static_cast<int64_t>(offset_);
    out_.pop_front();
    offset_ = 0;
  }
  if (!out_.empty()) return write();
  if (ends_) finish();
} catch (...) {
  close();
}

void Connection::finish() {
  report_done();
  if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->end(false);
  uncount_body();
  ends_ = streams_ = begun_ = false;
  status_ = 0;
  answered_bytes_ = 0;
  heartbeat_.clear();
  admission_ = Admission();
  head_ = RequestHead();
  if (!keeps_ || hub_->stopping || input_ended_) return linger();
  parser_ = std::make_unique<RequestParser>();
  state_ = State::kHead;
  since_ = Clock::now();
  wait(hub_->limits.idle_seconds);
  advance();
}

// Closing a connection while the client still sends would lose the answer on its way.
void Connection::linger() {
  error_code ignored;
  socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  if (input_ended_) return close();
  state_ = State::kLinger;
  since_ = Clock::now();
  parser_.reset();
  wait(kLingerSeconds);
  advance();
}

}  // namespace temper::http
