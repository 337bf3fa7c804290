#include <chrono>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "temper/metrics/sink.h"

namespace temper {
namespace {

std::string duration(double seconds) {
  const int64_t s = static_cast<int64_t>(std::llround(seconds));
  char buffer[32];
  if (s >= 3600) std::snprintf(buffer, sizeof buffer, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  else std::snprintf(buffer, sizeof buffer, "%ld:%02ld", s / 60, s % 60);
  return buffer;
}

std::string fixed(double value, int digits) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

class ConsoleSink : public Sink {
 public:
  explicit ConsoleSink(const SinkOptions& options) : options_(options), start_(std::chrono::steady_clock::now()) {}

  void log(const MetricsRow& row) override {
    if (!options_.console) return;
    if (row.is_eval()) return line(eval_text(row));
    if (first_step_ < 0) first_step_ = row.step();
    const std::string text = train_text(row);
    if (!options_.terminal) return line(text);
    shown_ = text.substr(0, static_cast<size_t>(std::max(20, options_.columns - 1)));
    *options_.console << "\r\033[K" << shown_ << std::flush;
  }
  void warn(const std::string& message) override { line("warning: " + message); }
  void finish() override {
    if (!shown_.empty()) *options_.console << "\n" << std::flush;
    shown_.clear();
  }

 private:
  // A line of its own; the progress line is drawn again below it.
  void line(const std::string& text) {
    if (!options_.console) return;
    if (options_.terminal) *options_.console << "\r\033[K";
    *options_.console << text << "\n" << shown_ << std::flush;
  }

  std::string train_text(const MetricsRow& row) const {
    std::string text = "step " + std::to_string(row.step());
    if (options_.total_steps > 0) text += "/" + std::to_string(options_.total_steps);
    text += "  loss " + fixed(row.number("loss").value_or(NAN), 4);
    if (const auto norm = row.number("grad_norm")) text += "  grad " + fixed(*norm, 3);
    if (const auto speed = row.number("tokens_per_second")) text += "  " + fixed(*speed, 0) + " tokens/s";
    if (options_.total_steps > 0) {
      const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
      const double done = static_cast<double>(row.step() - first_step_ + 1);
      text += "  left " + duration(elapsed / done * static_cast<double>(options_.total_steps - row.step()));
    }
    return text;
  }
  static std::string eval_text(const MetricsRow& row) {
    std::string text = "step " + std::to_string(row.step());
    for (const auto& [name, value] : row.values())
      if (name.starts_with("eval/")) text += "  " + name + " " + to_text(value);
    return text;
  }

  SinkOptions options_;
  std::chrono::steady_clock::time_point start_;
  int64_t first_step_ = -1;
  std::string shown_;
};

}  // namespace

std::unique_ptr<Sink> make_console_sink(const SinkOptions& options) { return std::make_unique<ConsoleSink>(options); }

}  // namespace temper
