#include "temper/process/worker.h"

#include <algorithm>
#include <utility>

#include "temper/base/error.h"
#include "temper/process/pipes.h"

namespace temper::process {
namespace {

using namespace std::chrono_literals;

constexpr size_t kKeptErrorOutput = 2000;  // bytes
constexpr auto kGrace = 200ms;  // time for a process to end by itself once its input is closed
// longest time between the end of a process's output and its own end
constexpr auto kEndingTakes = 100ms;
// time between checks whether a process has ended, where the system does not tell
constexpr auto kLook = 1ms;

}  // namespace

void Worker::start() {
  scratch_.emplace();
  process_.emplace(ProcessOptions{.command = options_.command,
                                  .environment = {"TMPDIR=" + scratch_->path()},
                                  .limits = options_.limits.list(),
                                  .scratch = scratch_->path(),
                                  .sandbox = options_.limits.sandbox});
  fresh_ = true;
}

void Worker::ask(std::string line, std::function<bool(const std::string& line)> answers) {
  request_ = std::move(line);
  answers_ = std::move(answers);
  if (!process_) start();
  unsent_ = std::exchange(told_, {}) + request_.substr(0, request_.size() - 1);
  phase_ = Phase::kSending;
  restart_clock();
}

void Worker::tell(const std::string& line) {
  if (!process_) return;
  told_ += line + "\n";
  write_told();
}

// Bytes that do not fit the pipe are sent with the next request.
void Worker::write_told() {
  if (busy() || told_.empty()) return;
  write_some(process_->input(), told_);
}

void Worker::restart_clock() {
  asked_ = Clock::now();
  deadline_ = asked_ + seconds(allowed_seconds());
}

double Worker::allowed_seconds() const {
  return options_.timeout_seconds + (fresh_ ? start_seconds_ : 0);
}

void Worker::add_awaited(std::vector<pollfd>& fds) const {
  if (!unsent_.empty()) fds.push_back({process_->input(), POLLOUT, 0});
  fds.push_back({closed_ ? process_->exit() : process_->output(), POLLIN, 0});
  fds.push_back({process_->errors(), POLLIN, 0});
}

// Nothing tells when a pipe has been read: one has to look, the less often the longer it takes.
Clock::time_point Worker::wake_time() const {
  if (closed_) return process_->exit() >= 0 ? *closed_ + kEndingTakes : Clock::now() + kLook;
  if (phase_ != Phase::kSending || !unsent_.empty()) return deadline_;
  const Clock::time_point now = Clock::now();
  return std::min(deadline_, now + std::clamp<Clock::duration>((now - asked_) / 4, 20us, 5ms));
}

void Worker::write_request() {
  if (!unsent_.empty() && !write_some(process_->input(), unsent_))
    unsent_.clear();  // it reads no more; its answer may still come
}

bool Worker::read_output() {
  if (process_->errors() >= 0) {
    if (!read_some(process_->errors(), error_output_, kKeptErrorOutput + 65536))
      process_->close_errors();
    if (error_output_.size() > kKeptErrorOutput)
      error_output_.erase(0, error_output_.size() - kKeptErrorOutput);
  }
  return read_some(process_->output(), received_, options_.longest_line + 1);
}

bool Worker::is_ending() {
  if (!closed_) closed_ = Clock::now();
  return !process_->has_ended() && Clock::now() < *closed_ + kEndingTakes;
}

void Worker::discard_line(std::string line) {
  if (unasked_lines_ == 0) unasked_ = std::move(line);
  ++unasked_lines_;
}

void Worker::discard_received() {
  for (size_t at = 0; at < received_.size();) {
    const size_t end = std::min(received_.find('\n', at), received_.size());
    discard_line(received_.substr(at, end - at));
    at = end + 1;
  }
  received_.clear();
}

std::optional<Worker::Answer> Worker::advance() {
  if (!busy()) return {};
  write_request();
  const bool was_read = phase_ == Phase::kSending && unsent_.empty() && process_->input_is_read();
  const bool open = read_output();  // after that look: what was written before reading is there
  if (phase_ == Phase::kAnswering)
    if (auto answer = take_line()) return answer;
  if (!open && is_ending()) return {};
  if (phase_ == Phase::kSending && !open && !fresh_) {
    if (options_.stateful) {
      Answer answer = fail(Answer::Kind::kEnded, ending());
      answer.between = true;
      return answer;
    }
    // It ended between two requests, which is no failure: another one answers.
    discard_received();
    stop();
    ask(std::move(request_), std::move(answers_));
    return {};
  }
  if (phase_ == Phase::kSending && was_read && open) end_request();
  if (received_.size() > options_.longest_line)
    return fail(Answer::Kind::kGarbage, phase_ == Phase::kAnswering
                                            ? temper::str("answered with a line of more than ",
                                                          options_.longest_line, " bytes")
                                            : temper::str("wrote more than ", options_.longest_line,
                                                          " bytes that nobody asked for"));
  if (!open) {
    const bool unread = phase_ == Phase::kSending && !options_.stateful;
    Answer answer = fail(Answer::Kind::kEnded, ending());
    answer.between = unread;
    return answer;
  }
  if (Clock::now() < deadline_) return {};
  const double waited = allowed_seconds();
  if (fresh_) start_seconds_ /= 2;
  return fail(Answer::Kind::kTimedOut, temper::str("gave no answer within ", waited, " s"));
}

// The process waits for the request's end: all that it has written so far answers nothing.
void Worker::end_request() {
  discard_received();
  unsent_ = request_.back();
  unsent_ += '\n';
  phase_ = Phase::kAnswering;
  write_request();
}

std::optional<Worker::Answer> Worker::take_line() {
  for (size_t end; (end = received_.find('\n')) != std::string::npos;) {
    std::string line = received_.substr(0, end);
    received_.erase(0, end + 1);
    if (!answers_(line)) {
      discard_line(std::move(line));
      continue;
    }
    fresh_ = false;
    start_seconds_ = options_.start_timeout_seconds;
    Answer answer = give(Answer::Kind::kLine, std::move(line));
    write_told();
    return answer;
  }
  return {};
}

std::string Worker::ending() {
  const std::string how = process_->ending();
  if (process_->errors() >= 0)
    read_some(process_->errors(), error_output_, kKeptErrorOutput + 65536);
  std::string tail = error_output_.size() > kKeptErrorOutput
                         ? error_output_.substr(error_output_.size() - kKeptErrorOutput)
                         : error_output_;
  tail.erase(tail.find_last_not_of(" \t\r\n") + 1);
  if (tail.empty()) return how;
  // The last line is what an exception ends with: its cause.
  const size_t before = tail.find_last_of('\n');
  if (before == tail.npos) return how + ": " + tail;
  return how + ": " + tail.substr(before + 1) + "; its standard error before that:\n" +
         tail.substr(0, before);
}

Worker::Answer Worker::give(Answer::Kind kind, std::string text) {
  phase_ = Phase::kIdle;
  return {kind, std::move(text), std::exchange(unasked_lines_, 0), std::exchange(unasked_, {})};
}

Worker::Answer Worker::fail(Answer::Kind kind, std::string text) {
  stop();
  return give(kind, std::move(text));
}

void Worker::stop() {
  if (process_) process_->end(busy() ? Clock::duration::zero() : Clock::duration(kGrace));
  process_.reset();
  scratch_.reset();
  unsent_.clear();
  told_.clear();
  received_.clear();
  error_output_.clear();
  closed_.reset();
  phase_ = Phase::kIdle;
  fresh_ = true;
}

}  // namespace temper::process
