// What a run does within a step, for who watches it: "sampling 12 of 64".
//
//   Activity sampling("sampling", 64);
//   ... sampling.advance();
//
// Any thread may make them, several at a time. While nobody watches an activity costs next to
// nothing, else a look at the clock for each advance().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace temper {

class Activity {
 public:
  // `what` is kept as a pointer: a string literal. total 0: unknown.
  explicit Activity(const char* what, int64_t total = 0);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  void advance(int64_t items = 1);  // 0: it goes on, and what is shown may be old
  std::string text() const;

 private:
  const char* what_;
  int64_t total_;
  std::atomic<int64_t> done_{0};
};

// The step that activities belong to, for who shows them.
void set_activity_step(int64_t step);
int64_t activity_step();

// Whoever shows activities, one at a time: the one made last.
class ActivityWatch {
 public:
  // `show` is called with what goes on, or empty text where what was shown has ended, by the thread
  // that advances, at most once in so many seconds. Nothing is shown sooner than that after
  // something else was said.
  ActivityWatch(std::function<void(const std::string&)> show, double seconds);
  ~ActivityWatch();
  ActivityWatch(const ActivityWatch&) = delete;
  ActivityWatch& operator=(const ActivityWatch&) = delete;

  // Held while anything is written where `show` writes. said(): it was written now.
  using Lock = std::unique_lock<std::recursive_mutex>;
  static Lock lock();
  void said();

 private:
  friend class Activity;
  void look(bool ended);
  const std::function<void(const std::string&)> show_;
  const double seconds_;
  bool shown_ = false;  // the last text was not empty
};

}  // namespace temper
