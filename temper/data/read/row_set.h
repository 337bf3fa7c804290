// The rows of one source: of a file, of all files of a directory, of those that a pattern names, or
// of a data set of the Hugging Face hub.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/read/row_file.h"
#include "temper/data/rows/row_format.h"
#include "temper/data/tools/balance.h"

namespace temper::data {

// A share of a source's rows that is kept out of training to evaluate on. Which rows these are is a
// function of their prompts and the seed, as in `temper data split`: neither their order nor other
// rows' edits move them between the parts (but for the few at the bound, as the share's size
// stays), and rows of the same prompt, white space aside, are always in the same part; where all
// have the same prompt, rows of the same text are.
struct HeldOut {
  double fraction = 0;  // [0, 1) of the rows, at least one prompt where above 0
  uint64_t seed = 0;
  bool by_line = false;  // by the text of their lines instead, as earlier versions did
};

// Shares of a source's rows (balance.h): rows are left out or repeated.
struct RowBalance {
  BalanceMode mode = BalanceMode::kUnder;
  std::string field, rules;  // what groups rows, as RowGroups takes it
  std::vector<std::pair<std::string, double>> targets;
  uint64_t seed = 0;
  std::string where;  // begins the message of a ConfigError
  // Called for each row that is read, with their number; what it throws ends the reading. Empty:
  // nothing is called.
  std::function<void(int64_t rows)> on_row = {};
};

class RowSet;
// How many consecutive rows a row becomes, at least one. Throws DataError for a wrong row.
using Pieces = std::function<int64_t(const RowSet& rows, int64_t row)>;

struct SourceSpec {
  std::string path;  // a file, a directory, a pattern with *, ? and [..], or a data set's id
  std::optional<double> weight = {};  // none where any source has one: 1
  std::string name = {};              // empty: the path
  std::optional<int64_t> limit = {};  // only the first so many rows, counted before any is held out
  HeldOut held_out = {};              // left out,
  bool only_held_out = false;         // or, the other way round, all that is given
  std::shared_ptr<const RowBalance> balance = nullptr;  // of the rows that are left; null: none
  // Of these rows: what their fields are called, none where their reader says so; and their format,
  // kAuto where their reader says so.
  std::optional<std::map<std::string, std::string>> columns = {};
  RowFormat format = RowFormat::kAuto;
  Pieces pieces = {};  // of the rows that all of this leaves; empty: each is one
};

// Files come in the order of their names' bytes, their rows one file after the other. Thread-safe.
class RowSet {
 public:
  // Throws DataError where a file cannot be read, no file is found or no row is left.
  explicit RowSet(const SourceSpec& spec);

  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }  // as it was given
  std::string where(int64_t row) const;              // "FILE:LINE"
  const std::string& file(int64_t row) const;        // the row's
  std::string line(int64_t row) const;               // its text, without the end of the line
  Json row(int64_t row) const;
  int64_t row_bytes(int64_t row) const;  // of a piece its share
  // Which of the pieces of its row in the file this is; 0 where rows are whole.
  int64_t piece(int64_t row) const;
  int64_t split_rows() const { return split_; }  // rows of the files that became several
  std::vector<std::string> files() const;
  int64_t bytes() const;  // of all lines of the files, unpacked
  // What to say where the share that is held out is far from the one that was asked for: more than
  // twice it, or less than half; empty otherwise.
  const std::string& about_held_out() const { return about_held_out_; }
  // The groups that were balanced; empty: none were.
  const std::vector<BalanceGroup>& balanced() const { return balanced_; }
  const std::optional<std::map<std::string, std::string>>& columns() const { return columns_; }
  RowFormat format() const { return format_; }

 private:
  struct Location {
    const RowFile* file;
    int64_t row;
  };
  Location place(int64_t row) const;
  Json renamed_row(int64_t row) const;
  std::vector<bool> held_out_rows(const HeldOut& held_out) const;
  void choose(const HeldOut& held_out, bool only_held_out);
  void balance(const RowBalance& how);
  void split(const Pieces& pieces);
  int64_t whole(int64_t row) const;  // the number that the row of a piece had before split()

  std::string path_;
  std::optional<std::map<std::string, std::string>> columns_;
  RowFormat format_;
  std::vector<std::unique_ptr<RowFile>> files_;
  std::vector<int64_t> first_;   // of each file, the number of rows before it
  std::vector<int64_t> chosen_;  // the rows of the part, as often as they occur; empty: all
  std::vector<int64_t>
      pieces_;  // of each row, the number of pieces before it; empty: rows are whole
  int64_t split_ = 0;
  std::vector<BalanceGroup> balanced_;
  std::string about_held_out_;
  int64_t size_ = 0;
};

// Whether a file's name ends as those of rows do: .jsonl, .ndjson, .parquet, or .gz and .zst of
// these, .tfrecord (tf_record.h), .csv, .tsv, .json. Hidden files are none.
bool is_row_file(const std::string& name);
// Whether a file that lies in a directory is one of its files of rows: by its name, and of .json
// where it is a list or has an object a line, as descriptions of models and data sets are .json
// too. Throws DataError where a .json cannot be read.
bool holds_rows(const std::string& path);

// The files that a path names: itself, a directory's files of rows (not those of its directories),
// what a pattern matches, or those of a data set in the Hugging Face cache (hub_dataset.h). Throws
// DataError or ConfigError where there are none.
std::vector<std::string> find_row_files(const std::string& path);

}  // namespace temper::data
