#include <cmath>
#include <cstdio>
#include <ostream>

#include "temper/base/error.h"
#include "temper/metrics/format.h"
#include "temper/metrics/sink.h"

namespace temper {
namespace {

constexpr const char* kClearLine = "\r\033[K";
constexpr double kSmoothing = 0.9;   // of the seconds a step takes
constexpr double kBetweenLines = 1;  // seconds, when piped: short steps would fill a log

class ConsoleSink : public Sink {
 public:
  explicit ConsoleSink(const SinkOptions& options) : options_(options) {
    check(options_.console != nullptr, "the console sink has no stream to print to");
  }

  void log(const MetricsRow& row) override {
    if (row.is_eval()) return line(eval_text(row));
    const double seconds = row.number("step_seconds").value_or(0);
    step_seconds_ =
        step_seconds_ == 0 ? seconds : kSmoothing * step_seconds_ + (1 - kSmoothing) * seconds;
    if (!options_.terminal) return print_now_and_then(row, seconds);
    progress_ = train_text(row).substr(0, static_cast<size_t>(std::max(1, options_.columns - 1)));
    *options_.console << kClearLine << progress_ << std::flush;
  }

  void warn(const std::string& message) override { line("warning: " + message); }
  void note(const std::string& text) override { line(text); }

  void finish() override {
    if (!progress_.empty()) *options_.console << "\n" << std::flush;
    progress_.clear();
  }

 private:
  // The first row, the last, and those between that come a while after the one before.
  void print_now_and_then(const MetricsRow& row, double seconds) {
    const bool first = !has_printed_, last = row.step() == options_.total_steps;
    since_printed_ += seconds;
    if (!first && !last && since_printed_ < kBetweenLines) return;
    since_printed_ = 0;
    has_printed_ = true;
    line(train_text(row));
  }

  // A line of its own, above the line of progress.
  void line(const std::string& text) {
    *options_.console << (progress_.empty() ? "" : kClearLine) << text << "\n"
                      << progress_ << std::flush;
  }

  std::string train_text(const MetricsRow& row) const {
    std::string text = step_text(row);
    const auto add = [&](const char* name, const char* label, std::string (*format)(double)) {
      if (const auto value = row.number(name)) text += str("  ", label, format(*value));
    };
    add("loss", "loss ", [](double x) { return format_fixed(x, 4); });
    add("reward_mean", "reward ", [](double x) { return format_fixed(x, 3); });
    add("completion_length_mean", "length ", [](double x) { return format_fixed(x, 1); });
    add("kl", "kl ", [](double x) { return format_brief(x); });
    add("grad_norm", "grad ", [](double x) { return format_fixed(x, 3); });
    add("learning_rate", "lr ", [](double x) { return format_brief(x); });
    add("tokens_per_second", "", [](double x) { return format_count(x) + " tokens/s"; });
    const auto rollout = row.number("rollout_seconds"), train = row.number("train_seconds");
    if (rollout && train)
      text += str("  rollout ", format_duration(*rollout), " train ", format_duration(*train));
    if (options_.total_steps > row.step())
      text += "  left " + format_duration(step_seconds_ *
                                          static_cast<double>(options_.total_steps - row.step()));
    return text;
  }

  std::string eval_text(const MetricsRow& row) const {
    std::string text = step_text(row);
    for (const auto& [name, value] : row.values())
      if (name != "step")
        text += "  " + name + " " +
                (row.number(name) ? format_brief(*row.number(name)) : to_text(value));
    return text;
  }

  std::string step_text(const MetricsRow& row) const {
    return options_.total_steps > 0 ? str("step ", row.step(), "/", options_.total_steps)
                                    : str("step ", row.step());
  }

  SinkOptions options_;
  std::string progress_;     // the line that is being redrawn; empty when piped
  double step_seconds_ = 0;  // smoothed
  double since_printed_ = 0;
  bool has_printed_ = false;
};

}  // namespace

std::unique_ptr<Sink> make_console_sink(const SinkOptions& options) {
  return std::make_unique<ConsoleSink>(options);
}

}  // namespace temper
