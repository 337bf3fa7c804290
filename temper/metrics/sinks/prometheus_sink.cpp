// OUTPUT_DIR/metrics.prom: the newest value of every metric in Prometheus' text format
// (prometheus.io/docs/instrumenting/exposition_formats), replaced as a whole at every row. A node
// exporter reads it where its --collector.textfile.directory links to it:
//
//   ln -s $PWD/runs/x/metrics.prom /var/lib/node_exporter/x.prom
//
// A value is a gauge `temper_NAME` with the label `run`, the output directory. Of a metric that is
// declared as "rewards/*" the rest of the name is the label `name`. Characters that a name may not
// have become `_`.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/metrics/sink.h"

namespace temper {
namespace {

std::string valid_name(std::string_view name) {
  std::string out = "temper_";
  for (const char c : name)
    out += std::isalnum(static_cast<unsigned char>(c)) && static_cast<unsigned char>(c) < 0x80
               ? c
               : '_';
  return out;
}

// Help texts are not quoted; labels are.
std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\\' || (c == '"' && quotes))
      (out += '\\') += c;
    else
      out += c;
  }
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return to_text(MetricsRow::Value(value));
}

class PrometheusSink : public Sink {
 public:
  explicit PrometheusSink(const SinkOptions& options)
      : metrics_(options.metrics),
        run_(options.output_dir),
        path_(options.output_dir + "/metrics.prom") {
    check(std::filesystem::is_directory(options.output_dir), options.output_dir,
          ": no such directory");
  }

  void log(const MetricsRow& row) override {
    restore(row);
    write_file_atomic(path_, text());
  }

  // The file comes back with the next row.
  void restore(const MetricsRow& row) override {
    for (const auto& [name, value] : row.values()) {
      const auto number = row.number(name);
      if (!number) continue;
      if (!values_.contains(name)) names_.push_back(name);
      values_[name] = *number;
    }
  }

  // Removes the values of steps that are discarded.
  void truncate_after(int64_t /*step*/) override {
    names_.clear();
    values_.clear();
    std::filesystem::remove(path_);
  }

 private:
  // Samples of one name stand together, as the format demands.
  struct Gauge {
    std::string name, help, samples;
    std::set<std::string> labels;
  };

  void add(std::vector<Gauge>& gauges, std::string_view name, double value) const {
    const MetricInfo* info = find_metric(metrics_, name);
    std::string_view measured;
    const MetricInfo* evaluated = find_evaluated_metric(metrics_, name, &measured);
    std::string_view base = name, rest;
    if (const MetricInfo* known = info ? info : evaluated; known && known->name.ends_with('*')) {
      rest = (info ? name : measured).substr(known->name.size() - 1);
      base.remove_suffix(rest.size());
      while (base.ends_with('/')) base.remove_suffix(1);
    }
    const std::string gauge_name = valid_name(base);
    auto gauge = std::find_if(gauges.begin(), gauges.end(),
                              [&](const Gauge& g) { return g.name == gauge_name; });
    if (gauge == gauges.end()) {
      std::string help = info        ? info->help
                         : evaluated ? "Evaluation: " + evaluated->help
                                     : std::string();
      gauge = gauges.insert(gauges.end(),
                            {gauge_name, help.empty() ? std::string(name) : help, "", {}});
    }
    const std::string labels =
        str("{run=\"", escaped(run_, true), "\"",
            rest.empty() ? "" : ",name=\"" + escaped(rest, true) + "\"", "}");
    // Two names that differ in invalid characters alone: a second value would spoil the file.
    if (!gauge->labels.insert(labels).second) return;
    gauge->samples += gauge_name + labels + " " + number_text(value) + "\n";
  }

  std::string text() const {
    std::vector<Gauge> gauges;
    for (const std::string& name : names_) add(gauges, name, values_.at(name));
    std::string out;
    for (const Gauge& gauge : gauges)
      out += "# HELP " + gauge.name + " " + escaped(gauge.help, false) + "\n# TYPE " + gauge.name +
             " gauge\n" + gauge.samples;
    return out;
  }

  std::vector<MetricInfo> metrics_;
  std::string run_, path_;
  std::vector<std::string> names_;  // in the order in which they came up
  std::map<std::string, double> values_;
};

std::unique_ptr<Sink> make_prometheus_sink(const SinkOptions& options) {
  return std::make_unique<PrometheusSink>(options);
}

const Registered<MakeSink> kPrometheusSink(
    &sinks,
    {"prometheus", &make_prometheus_sink,
     "OUTPUT_DIR/metrics.prom, the newest values for a node exporter's textfile collector"});

}  // namespace
}  // namespace temper
