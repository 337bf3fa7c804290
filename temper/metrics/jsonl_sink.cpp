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
    const std::string text = read_file(path_);
    std::string kept;
    int64_t line = 0;
    for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::string_view row = std::string_view(text).substr(at, end - at);
      if (MetricsRow::from_json(row, temper::str(path_, ":", ++line)).step() <= step)
        (kept += row) += '\n';
    }
    out_.close();
    write_file_atomic(path_, kept);
    open();
  }

 private:
  void open() {
    out_.open(path_, std::ios::app);
    check(out_.good(), path_, ": cannot write");
  }

  std::string path_;
  std::ofstream out_;
};

}  // namespace

std::unique_ptr<Sink> make_jsonl_sink(const SinkOptions& options) {
  return std::make_unique<JsonlSink>(options);
}

}  // namespace temper
