#include <algorithm>
#include <filesystem>
#include <fstream>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/metrics/sink.h"

namespace temper {
namespace {

// A cell; a line break within becomes a space, so that a row is a line.
std::string cell(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::vector<std::string> split_cells(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      cells.back() += line[i++];
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += line[i];
  }
  return cells;
}

// One table with the step in its first column. A name that comes up later becomes a new last
// column.
class CsvTable {
 public:
  explicit CsvTable(std::string path) : path_(std::move(path)) {
    const std::vector<std::string> lines = read_lines();
    if (!lines.empty()) columns_ = split_cells(lines.front());
  }

  void add(const MetricsRow& row) {
    const size_t known = columns_.size();
    if (columns_.empty()) columns_ = {"step"};
    for (const auto& [name, value] : row.values())
      if (std::find(columns_.begin(), columns_.end(), name) == columns_.end())
        columns_.push_back(name);
    if (columns_.size() != known) widen(columns_.size() - known);
    std::ofstream out(path_, std::ios::app);
    out << row_line(row) << std::flush;
    check(out.good(), path_, ": cannot write");
  }

  void truncate_after(int64_t step) {
    if (step < 0) {
      std::filesystem::remove(path_);
      columns_.clear();
      return;
    }
    keep([step](int64_t of) { return of <= step; });
  }

  void remove(int64_t step) {
    keep([step](int64_t of) { return of != step; });
  }

 private:
  // Keeps the header and the rows of steps that `stays` is true for.
  template <class Stays>
  void keep(Stays&& stays) {
    std::string kept;
    for (const std::string& line : read_lines())
      if (kept.empty() || stays(std::atoll(line.c_str()))) kept += line + "\n";
    if (!kept.empty()) write_file_atomic(path_, kept);
  }

  // Whole lines only: one that a crash left half-written is not among them.
  std::vector<std::string> read_lines() const {
    std::vector<std::string> lines;
    if (!std::filesystem::exists(path_)) return lines;
    const std::string text = read_file(path_);
    for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      lines.push_back(text.substr(at, end - at));
    return lines;
  }

  // Writes the file again under the present header, its rows with `more` empty cells at their ends.
  void widen(size_t more) {
    std::string text;
    for (const std::string& name : columns_) text += (text.empty() ? "" : ",") + cell(name);
    text += "\n";
    const std::vector<std::string> lines = read_lines();
    for (size_t i = 1; i < lines.size(); ++i) text += lines[i] + std::string(more, ',') + "\n";
    write_file_atomic(path_, text);
  }

  std::string row_line(const MetricsRow& row) const {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const MetricsRow::Value* value = row.find(columns_[i]);
      line += (i ? "," : "") + (value ? cell(to_text(*value)) : std::string());
    }
    return line + "\n";
  }

  std::string path_;
  std::vector<std::string> columns_;
};

class CsvSink : public Sink {
 public:
  explicit CsvSink(const SinkOptions& options)
      : train_(options.output_dir + "/metrics.csv"), eval_(options.output_dir + "/eval.csv") {
    check(std::filesystem::is_directory(options.output_dir), options.output_dir,
          ": no such directory");
  }
  void log(const MetricsRow& row) override { (row.is_eval() ? eval_ : train_).add(row); }
  void truncate_after(int64_t step) override {
    train_.truncate_after(step);
    eval_.truncate_after(step);
  }
  void remove_evaluation(int64_t step) override { eval_.remove(step); }

 private:
  CsvTable train_, eval_;
};

std::unique_ptr<Sink> make_csv_sink(const SinkOptions& options) {
  return std::make_unique<CsvSink>(options);
}

const Registered<MakeSink> kCsvSink(
    &sinks, {"csv", &make_csv_sink,
             "OUTPUT_DIR/metrics.csv, and eval.csv with the columns of evaluations"});

}  // namespace
}  // namespace temper
