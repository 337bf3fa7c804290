#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ostream>

#include "temper/base/error.h"
#include "temper/metrics/activity.h"
#include "temper/metrics/format.h"
#include "temper/metrics/sink.h"
#include "temper/text/unicode.h"

namespace temper {
namespace {

constexpr const char* kClearLine = "\r\033[K";
constexpr double kSmoothing = 0.9;  // weight of earlier steps in the smoothed seconds per step
// least seconds between lines, when piped: short steps would fill a log
constexpr double kBetweenLines = 1;
// seconds between two looks at what goes on within a step: on a terminal, whose line is redrawn,
// and in a log
constexpr double kBetweenDraws = 0.2, kBetweenActivities = 30;

// Asked for every line: a window may be made smaller.
int terminal_columns() {
  constexpr int kOtherwise = 80;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                           : kOtherwise;
}

// A count without a unit stays whole. A loss that rounding alone keeps from 0 is shown as 0; the
// files have it as it is.
std::string value_text(const MetricsRow::Value& value, const MetricInfo* info) {
  constexpr double kNoLoss = 1e-7;
  const std::string_view unit = info ? std::string_view(info->unit) : "";
  const auto* whole = std::get_if<int64_t>(&value);
  if (std::holds_alternative<std::string>(value) || (whole && unit.empty())) return to_text(value);
  const auto* single = std::get_if<float>(&value);
  const double number = whole    ? static_cast<double>(*whole)
                        : single ? *single
                                 : std::get<double>(value);
  const bool is_loss = info && (info->name == "loss" || info->name.starts_with("loss/"));
  return is_loss && std::abs(number) < kNoLoss ? "0" : format_value(number, unit);
}

class ConsoleSink : public Sink {
 public:
  explicit ConsoleSink(const SinkOptions& options) : options_(options) {
    check(options_.console != nullptr, "the console sink has no stream to print to");
    watch_.emplace([this](const std::string& text) { show(text); },
                   options_.terminal               ? kBetweenDraws
                   : options_.activity_seconds > 0 ? options_.activity_seconds
                                                   : kBetweenActivities);
  }

  void log(const MetricsRow& row) override {
    const ActivityWatch::Lock lock = ActivityWatch::lock();
    watch_->said();
    if (row.is_eval()) return line(eval_text(row));
    const double seconds = row.number("step_seconds").value_or(0);
    step_seconds_ =
        step_seconds_ == 0 ? seconds : kSmoothing * step_seconds_ + (1 - kSmoothing) * seconds;
    if (!options_.terminal || options_.log_every > 0) return print_now_and_then(row, seconds);
    last_row_ = row;
    redraw("");
  }

  void warn(const std::string& message) override { line("warning: " + printable(message)); }
  void note(const std::string& text) override { line(printable(text)); }

  void finish() override {
    const ActivityWatch::Lock lock = ActivityWatch::lock();
    if (!progress_.empty()) *options_.console << "\n" << std::flush;
    progress_.clear();
  }

 private:
  // What goes on within the step, behind the row of the last one, or on a line of its own where
  // lines are not redrawn.
  void show(const std::string& activity) {
    const std::string text =
        activity.empty() ? "" : step_text(activity_step()) + ": " + printable_line(activity);
    if (options_.terminal)
      redraw(text);
    else if (!text.empty())
      line(text);
  }

  void redraw(const std::string& activity) {
    const int columns = options_.columns > 0 ? options_.columns : terminal_columns();
    const auto most = static_cast<size_t>(std::max(1, columns - 1));
    const std::string end = activity.substr(0, most);
    const size_t taken = end.empty() ? 0 : end.size() + 2;
    progress_ = last_row_ && taken < most ? train_text(*last_row_, most - taken) : "";
    if (!end.empty()) progress_ += (progress_.empty() ? "" : "  ") + end;
    *options_.console << kClearLine << progress_ << std::flush;
  }

  // The first row, the last, and those between that were asked for, or else come a while after the
  // one before.
  void print_now_and_then(const MetricsRow& row, double seconds) {
    const bool first = !has_printed_, last = row.step() == options_.total_steps;
    since_printed_ += seconds;
    const bool due = options_.log_every > 0 ? row.step() % options_.log_every == 0
                                            : since_printed_ >= kBetweenLines;
    if (!first && !last && !due) return;
    since_printed_ = 0;
    has_printed_ = true;
    line(train_text(row));
  }

  // A line of its own, above the line of progress.
  void line(const std::string& text) {
    const ActivityWatch::Lock lock = ActivityWatch::lock();
    watch_->said();
    *options_.console << (progress_.empty() ? "" : kClearLine) << text << "\n"
                      << progress_ << std::flush;
  }

  // The step, the metrics in the order of their declarations and the time that is left, in at most
  // `most` characters: the least important metrics go first.
  std::string train_text(const MetricsRow& row, size_t most = std::string::npos) const {
    std::string left;
    if (options_.total_steps > row.step())
      left = "  left " + format_duration(step_seconds_ *
                                         static_cast<double>(options_.total_steps - row.step()));
    std::string text = step_text(row.step());
    for (const std::string& part : metric_texts(row)) {
      if (text.size() + part.size() + left.size() > most) break;
      text += part;
    }
    return (text + left).substr(0, most);
  }

  std::vector<std::string> metric_texts(const MetricsRow& row) const {
    std::vector<std::string> texts;
    for (const MetricInfo& info : options_.metrics)
      for (const auto& [name, value] : row.values()) {
        if (!info.console || find_metric(options_.metrics, name) != &info) continue;
        const std::string text = printable_line(value_text(value, &info));
        // A rate says what it is by its unit.
        texts.push_back("  " + (info.unit.ends_with("/s")
                                    ? text + " " + info.unit
                                    : printable_line(metric_label(info, name)) + " " + text));
      }
    return texts;
  }

  std::string eval_text(const MetricsRow& row) const {
    std::string text = step_text(row.step());
    for (const auto& [name, value] : row.values()) {
      if (name == "step") continue;
      const MetricInfo* info = find_evaluated_metric(options_.metrics, name);
      text += "  " + printable_line(name) + " " + printable_line(value_text(value, info));
    }
    return text;
  }

  std::string step_text(int64_t step) const {
    return options_.total_steps > 0 ? str("step ", step, "/", options_.total_steps)
                                    : str("step ", step);
  }

  SinkOptions options_;
  std::string progress_;     // the line that is being redrawn; empty when piped
  double step_seconds_ = 0;  // smoothed seconds per step
  double since_printed_ = 0;
  bool has_printed_ = false;
  std::optional<MetricsRow> last_row_;  // of a step, on a terminal
  std::optional<ActivityWatch> watch_;  // last: it shows what the others hold
};

std::unique_ptr<Sink> make_console_sink(const SinkOptions& options) {
  return std::make_unique<ConsoleSink>(options);
}

const Registered<MakeSink> kConsoleSink(
    &sinks,
    {"console", &make_console_sink, "one line of progress on a terminal, plain lines when piped"});

}  // namespace
}  // namespace temper
