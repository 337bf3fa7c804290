#include "temper/metrics/activity.h"

#include <limits>
#include <vector>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/metrics/format.h"

namespace temper {
namespace {

std::recursive_mutex activity_mutex;
std::vector<const Activity*> going_on;  // guarded by it, as the next
ActivityWatch* watching = nullptr;
std::atomic<double> next_look{std::numeric_limits<double>::infinity()};  // when; never: nobody does
std::atomic<int64_t> step_of_activities{0};

}  // namespace

Activity::Activity(const char* what, int64_t total) : what_(what), total_(total) {
  const auto lock = ActivityWatch::lock();
  going_on.push_back(this);
}

Activity::~Activity() {
  const auto lock = ActivityWatch::lock();
  std::erase(going_on, this);
  if (watching) watching->look(true);
}

void Activity::advance(int64_t items) {
  done_ += items;
  if (steady_seconds() < next_look) return;
  const auto lock = ActivityWatch::lock();
  if (watching) watching->look(false);
}

std::string Activity::text() const {
  const std::string done = format_count(static_cast<double>(done_.load()));
  if (total_ > 0) return str(what_, " ", done, " of ", format_count(static_cast<double>(total_)));
  return done_ > 0 ? str(what_, " ", done) : what_;
}

void set_activity_step(int64_t step) { step_of_activities = step; }
int64_t activity_step() { return step_of_activities; }

ActivityWatch::ActivityWatch(std::function<void(const std::string&)> show, double seconds)
    : show_(std::move(show)), seconds_(seconds) {
  const Lock held = lock();
  watching = this;
  said();
}

ActivityWatch::~ActivityWatch() {
  const Lock held = lock();
  if (watching != this) return;
  watching = nullptr;
  next_look = std::numeric_limits<double>::infinity();
}

ActivityWatch::Lock ActivityWatch::lock() { return Lock(activity_mutex); }

void ActivityWatch::said() {
  if (watching == this) next_look = steady_seconds() + seconds_;
}

// The mutex is held.
void ActivityWatch::look(bool ended) {
  if (ended && !(shown_ && going_on.empty())) return;
  if (!ended && steady_seconds() < next_look) return;  // another thread was quicker
  std::string text;
  for (const Activity* activity : going_on) text += (text.empty() ? "" : "; ") + activity->text();
  said();
  shown_ = !text.empty();
  show_(text);
}

}  // namespace temper
