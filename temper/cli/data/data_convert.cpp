// temper data convert: rows of one format as rows of another.
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/cli/data/data_tools.h"
#include "temper/cli/data/row_sink.h"
#include "temper/data/rows/row_formats.h"
#include "temper/metrics/format.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

const std::vector<std::string> kFormats{"messages", "sharegpt", "alpaca", "prompt"};

class Convert : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Writes rows in another form. The file's name says which: .jsonl, .jsonl.gz, .jsonl.zst, "
        ".json (one list) or .parquet; what is read\nmay be Parquet, TFRecord, .csv or .tsv, too. "
        "--to "
        "writes conversations as messages, ShareGPT, Alpaca or prompt and completion.\n"
        "example: temper data convert sharegpt.parquet --to messages --output rows.jsonl.zst");
    inputs_.add_to(f);
    f.add("--output", output_, "file for the rows, or - for standard output", required());
    f.add("--to", to_,
          "format of the rows: messages, sharegpt, alpaca, or prompt (messages as prompt and "
          "completion); default: as they are, with the names that --columns gives",
          one_of(kFormats));
    f.add("--json", json_, "print the figures as one JSON object");
  }

  int run() override {
    check_figures_apart("convert", json_, output_);
    const data::RowList rows = inputs_.open();
    check_rows_output(output_, rows);
    RowSink out(output_);
    each_row(
        "converted", rows.size(), [&](int64_t i) { return converted(rows, i); },
        [&](int64_t i, const std::string& line) { out.line(line, rows.where(i)); });
    out.finish();
    if (json_)
      std::cout << nlohmann::ordered_json{{"rows", rows.size()},
                                          {"format", to_.empty() ? "unchanged" : to_}}
                       .dump(2)
                << std::endl;
    else
      beside(output_) << printable_line(output_) << ": "
                      << format_count(static_cast<double>(rows.size())) << " rows" << std::endl;
    return 0;
  }

 private:
  // A row without anything to change stays as it is in the file.
  std::string converted(const data::RowList& rows, int64_t i) const {
    if (to_.empty() && inputs_.columns.empty()) {
      rows.row(i);  // says what is wrong with it
      return line_for(output_, inputs_, rows, i);
    }
    Json row = rows.renamed(i, true);
    for (size_t f = 0; f < std::size(kFormats); ++f)
      if (to_ == kFormats[f])
        row = data::convert_row(row, static_cast<data::WrittenFormat>(f), rows.where(i));
    move_images(row, directory_of(rows, i), output_);
    return dump_json(row);
  }

  DataInputs inputs_;
  std::string output_, to_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> data_convert() { return std::make_unique<Convert>(); }

}  // namespace temper::cli
