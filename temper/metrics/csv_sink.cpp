#include <filesystem>
#include <fstream>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/metrics/sink.h"

namespace temper {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

// One table: its columns are those of its first row.
class CsvTable {
 public:
  explicit CsvTable(std::string path) : path_(std::move(path)) {}

  void add(const MetricsRow& row) {
    std::ofstream out(path_, std::ios::app);
    if (columns_.empty()) {
      for (const auto& [name, value] : row.values()) columns_.push_back(name);
      if (std::filesystem::file_size(path_) == 0) {
        for (size_t i = 0; i < columns_.size(); ++i) out << (i ? "," : "") << quoted(columns_[i]);
        out << "\n";
      }
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      const MetricsRow::Value* value = row.find(columns_[i]);
      out << (i ? "," : "") << (value ? quoted(to_text(*value)) : "");
    }
    out << "\n" << std::flush;
    check(out.good(), path_, ": cannot write");
  }

  // The first column is the step.
  void truncate_after(int64_t step) {
    if (!std::filesystem::exists(path_)) return;
    const std::string text = read_file(path_);
    std::string kept;
    bool header = true;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      if (end == std::string::npos) break;
      const std::string line = text.substr(at, end + 1 - at);
      if (header || std::atoll(line.c_str()) <= step) kept += line;
      header = false;
      at = end + 1;
    }
    write_file_atomic(path_, step < 0 ? "" : kept);
  }

 private:
  std::string path_;
  std::vector<std::string> columns_;
};

class CsvSink : public Sink {
 public:
  explicit CsvSink(const SinkOptions& options)
      : train_(options.output_dir + "/metrics.csv"), eval_(options.output_dir + "/eval.csv") {}
  void log(const MetricsRow& row) override { (row.is_eval() ? eval_ : train_).add(row); }
  void truncate_after(int64_t step) override {
    train_.truncate_after(step);
    eval_.truncate_after(step);
  }

 private:
  CsvTable train_, eval_;
};

}  // namespace

std::unique_ptr<Sink> make_csv_sink(const SinkOptions& options) { return std::make_unique<CsvSink>(options); }

}  // namespace temper
