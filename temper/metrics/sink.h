// A sink receives the rows of metrics. Each is one file, which ends with its
// `Registered<MakeSink>`; other programs add theirs with sinks().add before temper::cli::run.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/registry.h"
#include "temper/metrics/metric_info.h"
#include "temper/metrics/row.h"

namespace temper {

struct SinkOptions {
  std::string output_dir;
  int64_t total_steps = 0;          // 0: unknown
  std::ostream* console = nullptr;  // where the console sink prints
  bool terminal = false;            // the console is a terminal: one line that is redrawn
  int columns = 0;        // columns of the terminal; 0: asks the terminal that is standard output
  int64_t log_every = 0;  // steps between the console's lines; 0: at most one a second
  // seconds between lines about what goes on within a step, where the console is no terminal; 0: 30
  double activity_seconds = 0;
  std::vector<MetricInfo> metrics = {};  // declared metrics; rows may have others
  // The run's resolved config: the names of its top-level sections and keys, with their values as
  // JSON.
  std::vector<std::pair<std::string, std::string>> config = {};
};

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void log(const MetricsRow& row) = 0;
  // Removes the rows of steps after this one, which a resumed run writes again. A fresh run passes
  // -1.
  virtual void truncate_after(int64_t /*step*/) {}
  // Removes the evaluation rows of a step: it is evaluated again, as its checkpoint was made before
  // that was done.
  virtual void remove_evaluation(int64_t /*step*/) {}
  // A row that stays where a run resumes: after the two above, all that metrics.jsonl has, in
  // order.
  virtual void restore(const MetricsRow& /*row*/) {}
  virtual void warn(const std::string& /*message*/) {}
  virtual void note(const std::string& /*text*/) {}  // something to look at
  virtual void finish() {}
};

// Throws RunError, or ConfigError, where it cannot start.
using MakeSink = std::function<std::unique_ptr<Sink>(const SinkOptions&)>;
Registry<MakeSink>& sinks();

// All sinks of a run. Only rank 0 has one.
class Metrics {
 public:
  // Throws ConfigError for an unknown name (`where` begins the message:
  // RunConfig::where("metrics.sinks")), and whatever a backend throws that cannot start.
  Metrics(std::span<const std::string> names, const SinkOptions& options,
          const std::string& where = "metrics.sinks");

  // A backend that fails is reported once by warn() and gets no more rows.
  void log(const MetricsRow& row);
  void truncate_after(int64_t step);
  void remove_evaluation(int64_t step);
  void restore(const MetricsRow& row);
  void warn(const std::string& message);
  void note(const std::string& text);
  void finish();

 private:
  struct Open {
    std::string name;
    std::unique_ptr<Sink> sink;  // empty once it failed
  };
  template <class Action>
  void each(Action&& action);

  std::vector<Open> open_;
  std::ostream* plain_ = nullptr;  // where warnings go if there is no console sink
};

}  // namespace temper
