#include <fstream>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/metrics/sink.h"

namespace temper {
namespace {

class JsonlSink : public Sink {
 public:
  explicit JsonlSink(const SinkOptions& options) : path_(options.output_dir + "/metrics.jsonl") {
    open();
  }

  void log(const MetricsRow& row) override {
    out_ << row.json() << "\n" << std::flush;
    check(out_.good(), path_, ": cannot write");
  }

  // Lines stay as they are; one that a crash left half-written goes.
  void truncate_after(int64_t step) override {
    rewrite(metrics_up_to(step, read_file(path_), path_));
  }

  void remove_evaluation(int64_t step) override {
    rewrite(metrics_without_evaluation(step, read_file(path_), path_));
  }

 private:
  void rewrite(const std::string& text) {
    out_.close();
    write_file_atomic(path_, text);
    open();
  }

  void open() {
    out_.open(path_, std::ios::app);
    check(out_.good(), path_, ": cannot write");
  }

  std::string path_;
  std::ofstream out_;
};

std::unique_ptr<Sink> make_jsonl_sink(const SinkOptions& options) {
  return std::make_unique<JsonlSink>(options);
}

const Registered<MakeSink> kJsonlSink(
    &sinks,
    {"jsonl", &make_jsonl_sink, "OUTPUT_DIR/metrics.jsonl, a row a step at full float precision"});

}  // namespace
}  // namespace temper
