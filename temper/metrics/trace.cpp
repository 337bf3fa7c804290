#include "temper/metrics/trace.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"

namespace temper::trace {
namespace {

constexpr int64_t kMaxSpans = 1'000'000;

struct Recorded {
  const char* name;
  int64_t number, start_ns, end_ns;
};

// A thread's spans; they outlive it. The lock is contended only while a trace is written.
struct ThreadSpans {
  std::mutex mutex;
  std::string name;
  std::vector<Recorded> spans;
};

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadSpans>> threads;  // a thread's place is its id in the file
  std::map<std::string, int64_t> counts;
};

Registry& registry() {
  static Registry registry;
  return registry;
}

ThreadSpans& this_thread_spans() {
  thread_local const std::shared_ptr<ThreadSpans> mine = [] {
    auto spans = std::make_shared<ThreadSpans>();
    const std::lock_guard lock(registry().mutex);
    registry().threads.push_back(spans);
    return spans;
  }();
  return *mine;
}

std::atomic<int64_t> recorded{0};
std::atomic<int64_t> start_of_trace{0};

std::string microseconds(int64_t ns) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%lld.%03lld", static_cast<long long>(ns / 1000),
                static_cast<long long>(ns % 1000));
  return buffer;
}

void append_thread(ThreadSpans& thread, const std::string& place, std::string& out) {
  const std::lock_guard lock(thread.mutex);
  if (!thread.name.empty())
    out += str(",\n{\"ph\":\"M\",", place,
               ",\"name\":\"thread_name\",\"args\":{\"name\":", dump_json(Json(thread.name)), "}}");
  for (const Recorded& span : thread.spans) {
    out += str(",\n{\"ph\":\"X\",", place, ",\"name\":", dump_json(Json(span.name)),
               ",\"ts\":", microseconds(span.start_ns - start_of_trace),
               ",\"dur\":", microseconds(span.end_ns - span.start_ns));
    if (span.number >= 0) out += str(",\"args\":{\"number\":", span.number, "}");
    out += "}";
  }
}

}  // namespace

namespace detail {

std::atomic<bool> on{false};

int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

void record(const char* name, int64_t number, int64_t start_ns, int64_t end_ns) {
  if (!on || start_ns < start_of_trace || ++recorded > kMaxSpans) return;
  ThreadSpans& mine = this_thread_spans();
  const std::lock_guard lock(mine.mutex);
  mine.spans.push_back({name, number, start_ns, end_ns});
}

}  // namespace detail

void count(const std::string& name, int64_t amount) {
  if (!detail::on) return;
  const std::lock_guard lock(registry().mutex);
  registry().counts[name] += amount;
}

void start() {
  const std::lock_guard lock(registry().mutex);
  registry().counts.clear();
  for (const auto& thread : registry().threads) {
    const std::lock_guard thread_lock(thread->mutex);
    thread->spans.clear();
  }
  recorded = 0;
  start_of_trace = detail::now_ns();
  detail::on = true;
}

void write(const std::string& path, int64_t rank) {
  detail::on = false;
  std::string out =
      str("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":", rank,
          ",\"name\":\"process_name\",\"args\":{\"name\":\"rank ", rank, "\"}}");
  const std::lock_guard lock(registry().mutex);
  for (size_t id = 0; id < registry().threads.size(); ++id)
    append_thread(*registry().threads[id], str("\"pid\":", rank, ",\"tid\":", id), out);
  const int64_t dropped = std::max<int64_t>(0, recorded - kMaxSpans);
  out += str("\n],\"otherData\":{\"dropped_spans\":", dropped,
             ",\"counts\":", dump_json(Json(registry().counts)), "}}\n");
  write_file_atomic(path, out);
}

void name_thread(const std::string& name) {
  ThreadSpans& mine = this_thread_spans();
  const std::lock_guard lock(mine.mutex);
  mine.name = name;
}

}  // namespace temper::trace
