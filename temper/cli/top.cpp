// temper top: the progress of a run or of a sweep's runs, from their files.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/cli/parts/options.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/run_files.h"
#include "temper/cli/top_page.h"
#include "temper/cli/verbs.h"
#include "temper/http/server.h"
#include "temper/metrics/format.h"
#include "temper/text/unicode.h"
#include "temper/train/run/run_lock.h"

namespace temper::cli {
namespace {

constexpr size_t kAveragedSteps = 20;  // of speed and time left
constexpr size_t kShownMetrics = 3;
constexpr double kBetweenLines = 10;  // seconds, where standard output is no terminal

// The finite mean of a metric's last values.
std::optional<double> recent_mean(const std::vector<MetricsRow>& rows, const std::string& name) {
  double sum = 0;
  size_t count = 0;
  for (auto row = rows.rbegin(); row != rows.rend() && count < kAveragedSteps; ++row)
    if (const auto value = row->number(name); value && std::isfinite(*value)) {
      sum += *value;
      ++count;
    }
  return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
}

class Top : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Shows the progress of a run, or of each run of a sweep, from their files: step, loss or "
        "reward, speed, time left and memory, until they end.\n"
        "examples:\n"
        "  temper top runs/sft\n"
        "  temper top runs/sft --once\n"
        "  temper top runs/grpo --serve");
    f.add("RUN", run_, "directory of a run, or of a sweep", required());
    f.add("--once", once_, "print one line a run and end");
    f.add("--serve", serves_,
          "a page with curves and rollouts, for browsers of this machine; prints its address");
    f.add("--port", port_, "with --serve: the port; 0: a free one", between(0, 65535));
    f.needs("--port", "--serve");
    f.excludes("--serve", {"--once"});
  }

  int run() override {
    if (serves_) return serve();
    catch_interrupts();
    const bool terminal = ::isatty(STDOUT_FILENO) == 1 && !once_;
    std::string shown;
    double shown_at = 0;
    while (true) {
      find_runs();
      std::string lines;
      bool running = false;
      for (Shown& run : runs_) lines += (lines.empty() ? "" : "\n") + run.line(running);
      const bool last = once_ || !running || interrupted();
      if (terminal) {
        std::cout << back_over(shown) << lines << (last ? "\n" : "") << std::flush;
        shown = lines;
      } else if (last || (lines != shown && steady_seconds() - shown_at >= kBetweenLines)) {
        std::cout << lines << std::endl;
        shown = lines;
        shown_at = steady_seconds();
      }
      if (last) return interrupted() ? stopped_status() : 0;
      for (int i = 0; i < 10 && !interrupted(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

 private:
  int serve() {
    const std::string host = "127.0.0.1";
    TopPage page(run_, RunFiles(run_).planned_steps);
    http::Server server(page, {.buffered_bytes = int64_t{1} << 20, .connections = 64});
    const int port = server.bind(host, static_cast<int>(port_));
    check<ConfigError>(port > 0,
                       "--port: ", http::why_not_listening(host, static_cast<int>(port_)));
    catch_interrupts();
    std::cout << "http://" << host << ":" << port << "/ shows " << run_ << "; Ctrl-C ends it"
              << std::endl;
    std::thread serving([&] { server.run(); });
    while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    server.stop();
    serving.join();
    return 0;
  }

  struct Shown {
    std::string directory, name;  // name: of a sweep's run
    std::optional<RunFiles> files = {};
    uintmax_t size = 0;  // of metrics.jsonl when the files were read

    // Sets `running` where it is.
    std::string line(bool& running) {
      // Before the files are read: they are then its last.
      const bool runs = train::is_running(directory);
      running = running || runs;
      std::error_code none;
      const uintmax_t now = std::filesystem::file_size(directory + "/metrics.jsonl", none);
      if (!files || now != size) files.emplace(directory);
      size = now;
      return (name.empty() ? "" : printable(name) + ": ") + describe(*files, runs);
    }
  };

  // The run itself, or those of the sweep that are there by now, in order of their names.
  void find_runs() {
    std::vector<std::string> names;
    std::error_code none;
    if (!is_run(run_))
      for (const auto& entry : std::filesystem::directory_iterator(run_, none))
        if (entry.is_directory(none) && is_run(entry.path().string()))
          names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    if (names.empty() && runs_.empty()) runs_.push_back({run_, ""});
    for (const std::string& name : names)
      if (std::ranges::find(runs_, name, &Shown::name) == runs_.end())
        runs_.push_back({run_ + "/" + name, name});
  }

  // What puts a terminal back to the begin of these lines and clears them.
  static std::string back_over(const std::string& lines) {
    std::string codes = "\r\033[K";
    for (const char c : lines)
      if (c == '\n') codes += "\033[A\033[K";
    return codes;
  }

  static std::string describe(const RunFiles& run, bool running) {
    std::vector<MetricsRow> steps;
    for (const MetricsRow& row : run.rows)
      if (!row.is_eval()) steps.push_back(row);
    const std::string state = running ? "" : "not running; ";
    if (steps.empty()) return state + (running ? "before the first step" : "no step was made");
    const MetricsRow& last = steps.back();
    std::string line = str(state, "step ", format_count(static_cast<double>(last.step())));
    if (run.planned_steps > 0)
      line += " of " + format_count(static_cast<double>(run.planned_steps));
    size_t shown = 0;
    for (const MetricInfo& info : run.report.metrics) {
      const auto value = last.number(info.name);
      if (!info.console || !value || shown == kShownMetrics || is_of_machine({info}, info.name))
        continue;
      line += str("  ", metric_label(info, info.name), " ", format_value(*value, info.unit));
      ++shown;
    }
    if (const auto speed = recent_mean(steps, "tokens_per_second"))
      line += "  " + format_value(*speed, "tokens/s") + " tokens/s";
    const auto seconds = recent_mean(steps, "step_seconds");
    const int64_t left = run.planned_steps - last.step();
    if (running && seconds && left > 0)
      line += "  left " + format_duration(*seconds * static_cast<double>(left));
    if (const auto memory = last.number("peak_memory_bytes"))
      line += "  peak memory " + format_bytes(*memory);
    return line;
  }

  std::string run_;
  bool once_ = false, serves_ = false;
  int64_t port_ = 0;
  std::vector<Shown> runs_;
};

}  // namespace

std::unique_ptr<Command> top_command() { return std::make_unique<Top>(); }

}  // namespace temper::cli
