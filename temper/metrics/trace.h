// Spans of time by thread, written as Chrome trace events: trace.json opens in Perfetto
// (ui.perfetto.dev).
//
//   TraceSpan span("forward");   // costs one relaxed load while tracing is off
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace temper {

namespace trace_detail {
extern std::atomic<bool> on;
int64_t now_ns();
void record(const char* name, int64_t start_ns, int64_t end_ns);
}  // namespace trace_detail

// Starts to record; earlier spans are forgotten.
void start_trace();

// Stops and writes the recorded spans. Spans that are still open, or beyond the first four million,
// are left out (the latter counted in the file). Throws RunError.
void write_trace(const std::string& path);

// What the timeline calls this thread.
void name_trace_thread(const std::string& name);

class TraceSpan {
 public:
  // `name` is kept as a pointer: a string literal.
  explicit TraceSpan(const char* name)
      : name_(trace_detail::on.load(std::memory_order_relaxed) ? name : nullptr),
        start_ns_(name_ ? trace_detail::now_ns() : 0) {}
  ~TraceSpan() {
    if (name_) trace_detail::record(name_, start_ns_, trace_detail::now_ns());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  const char* name_;
  int64_t start_ns_;
};

}  // namespace temper
