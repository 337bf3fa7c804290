// Spans of time by thread, written as Chrome trace events: trace.json opens in Perfetto
// (ui.perfetto.dev).
//
//   trace::Span span("forward");   // costs one relaxed load while nothing is recorded
//   trace::count("sent bytes: data", n);  // totals stand in the file's `otherData.counts`
//
// Nothing is recorded between the program's start and trace::start(). Any thread may make spans
// and count.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace temper::trace {

namespace detail {
extern std::atomic<bool> on;
int64_t now_ns();
void record(const char* name, int64_t number, int64_t start_ns, int64_t end_ns);
}  // namespace detail

// Adds to the total of that name, where spans are recorded.
void count(const std::string& name, int64_t amount);

// Starts to record; earlier spans and counts are forgotten.
void start();

// Stops and writes the recorded spans, those of rank `rank` of a run. Spans that are still open, or
// beyond the first million, are left out (the latter counted in the file). Throws RunError.
void write(const std::string& path, int64_t rank = 0);

// Sets this thread's name in the timeline.
void name_thread(const std::string& name);

// The time from its construction to its destruction, on one thread.
class Span {
 public:
  // `name` is kept as a pointer: a string literal. `number`, of a step or a pass, is shown with the
  // span where it is not negative.
  explicit Span(const char* name, int64_t number = -1)
      : name_(detail::on.load(std::memory_order_relaxed) ? name : nullptr),
        number_(number),
        start_ns_(name_ ? detail::now_ns() : 0) {}
  ~Span() {
    if (name_) detail::record(name_, number_, start_ns_, detail::now_ns());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_;
  int64_t number_, start_ns_;
};

}  // namespace temper::trace
