#include "temper/cli/progress.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <iostream>

#include "temper/base/error.h"
#include "temper/metrics/format.h"

namespace temper::cli {
namespace {

volatile sig_atomic_t asked_to_stop = 0;
volatile int64_t asked_at = 0;  // milliseconds

void on_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t milliseconds = now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
  if (!asked_to_stop) {
    asked_at = milliseconds;
    asked_to_stop = 1;
  } else if (milliseconds - asked_at > 1000) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

}  // namespace

void catch_interrupts() {
  ::signal(SIGINT, on_signal);
  ::signal(SIGTERM, on_signal);
}
void let_interrupts_end() {
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  if (interrupted()) ::raise(SIGINT);
}
bool interrupted() { return asked_to_stop != 0; }

Progress::Progress(std::string what, int64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      drawn_(start_) {}

Progress::~Progress() {
  if (terminal_) std::cerr << "\r\033[K" << std::flush;
}

void Progress::advance(int64_t items, int64_t tokens) {
  items_ += items;
  tokens_ += tokens;
  if (!terminal_) return;
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < std::chrono::milliseconds(200)) return;
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::cerr << "\r\033[K" << what_ << " " << items_;
  if (total_ > 0) std::cerr << " of " << total_;
  std::cerr << ", " << format_count(static_cast<double>(tokens_) / seconds) << " tokens/s";
  if (total_ > 0 && items_ > 0)
    std::cerr << ", left "
              << format_duration(seconds * static_cast<double>(total_ - items_) /
                                 static_cast<double>(items_));
  std::cerr << std::flush;
}

}  // namespace temper::cli
