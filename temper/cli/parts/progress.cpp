#include "temper/cli/parts/progress.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <iostream>

#include "temper/base/clock.h"
#include "temper/metrics/format.h"

namespace temper::cli {
namespace {

volatile sig_atomic_t asked_to_stop = 0;
const char* volatile notice = nullptr;
bool (*volatile notice_applies)() = nullptr;
volatile int64_t asked_at = 0;  // milliseconds

void on_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t milliseconds = now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
  if (!asked_to_stop) {
    asked_at = milliseconds;
    asked_to_stop = signal;
    if (notice && notice_applies && !notice_applies()) return;
    if (notice && ::write(STDERR_FILENO, notice, std::strlen(notice)) < 0) return;
  } else if (milliseconds - asked_at > 1000) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

}  // namespace

void catch_interrupts(const char* said, bool (*applies)()) {
  notice = said;
  notice_applies = applies;
  ::signal(SIGINT, on_signal);
  ::signal(SIGTERM, on_signal);
  if (::signal(SIGHUP, on_signal) == SIG_IGN) ::signal(SIGHUP, SIG_IGN);  // under nohup
}
void let_interrupts_end() {
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  if (::signal(SIGHUP, SIG_DFL) == SIG_IGN) ::signal(SIGHUP, SIG_IGN);
  if (interrupted()) ::raise(asked_to_stop);
}
void forget_interrupt() {
  asked_to_stop = 0;
  let_interrupts_end();
}
bool interrupted() { return asked_to_stop != 0; }
bool interrupted_by_key() { return asked_to_stop == SIGINT; }
int stopped_status() { return 128 + (asked_to_stop ? asked_to_stop : SIGTERM); }

Progress::Progress(std::string what, int64_t total, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(steady_seconds()),
      drawn_(start_) {}

Progress::~Progress() {
  if (terminal_) std::cerr << "\r\033[K" << std::flush;
}

void Progress::advance(int64_t items, int64_t units) {
  items_ += items;
  units_ += units;
  const double now = steady_seconds();
  if (now - drawn_ < (terminal_ ? 0.2 : 60)) return;
  drawn_ = now;
  const double seconds = now - start_;
  std::cerr << (terminal_ ? "\r\033[K" : "") << what_ << " " << items_;
  if (total_ > 0) std::cerr << " of " << total_;
  const int64_t counted = unit_.empty() ? items_ : units_;
  std::cerr << ", " << format_count(static_cast<double>(counted) / seconds) << " "
            << (unit_.empty() ? "rows" : unit_) << "/s";
  if (total_ > 0 && items_ > 0)
    std::cerr << ", left "
              << format_duration(seconds * static_cast<double>(total_ - items_) /
                                 static_cast<double>(items_));
  std::cerr << (terminal_ ? "" : "\n") << std::flush;
}

}  // namespace temper::cli
