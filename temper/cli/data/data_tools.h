// The tools of temper data, and what they share.
#pragma once

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "temper/cli/parts/options.h"
#include "temper/cli/parts/output.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/verbs.h"
#include "temper/data/read/row_list.h"
#include "temper/data/rows/row_groups.h"
#include "temper/data/tools/balance.h"

namespace temper::cli {

std::unique_ptr<Command> data_stats();
std::unique_ptr<Command> data_balance();
std::unique_ptr<Command> data_dedup();
std::unique_ptr<Command> data_split();
std::unique_ptr<Command> data_convert();
std::unique_ptr<Command> data_pairs();

// IN... and --columns.
struct DataInputs {
  std::vector<std::string> inputs;
  std::map<std::string, std::string> columns;
  void add_to(Flags& f);
  // Catches interrupts from here on: each_row() ends at one. Throws ConfigError, DataError.
  data::RowList open() const;
};

// The folder of the row's file; empty of standard input, whose paths are relative to this process.
std::string directory_of(const data::RowList& rows, int64_t row);
// The row's line, for a file in the directory of `output`: relative paths of images are rewritten.
// Beside standard output they stay as they are.
std::string line_for(const std::string& output, const DataInputs& inputs, const data::RowList& rows,
                     int64_t row);
// The same for a row that is written in its place; a field that --columns renames has its new name.
void move_images(Json& row, const std::string& from, const std::string& output);
// The row, renamed, with the SHA-256 of its images in their places; and of a
// row as it is in its file its images' alone.
Json comparable_row(const DataInputs& inputs, const data::RowList& rows, int64_t row);
std::string images_of_row(const DataInputs& inputs, const Json& row, const std::string& directory);

// --field and --rules.
struct GroupFlags {
  std::string field, rules;
  void add_to(Flags& f);
  data::RowGroups groups() const { return {field, rules}; }
};

// Throws ConfigError where `output` is one of the files that are read, or is named as a file of
// a format that RowSink does not write.
void check_rows_output(const std::string& output, const data::RowList& rows,
                       const std::string& flag = "--output");

// Throws ConfigError where the figures of `tool` and its rows would both go to standard output.
void check_figures_apart(const char* tool, bool json, const std::string& output);

// What is printed beside rows: on standard output, unless the rows go there.
std::ostream& beside(const std::string& output);

// data::each_in_order with progress on the terminal. Throws Interrupted when a signal asks to stop.
template <class Compute, class Consume>
void each_row(const char* what, int64_t n, const Compute& compute, const Consume& consume) {
  Progress progress(what, n, "");
  data::each_in_order(n, compute, [&](int64_t i, auto result) {
    if (interrupted()) throw Interrupted();
    consume(i, std::move(result));
    progress.advance(1);
  });
}

// The groups of the rows, read with progress on the terminal.
data::GroupedRows grouped(const data::RowGroups& by, const data::RowList& rows);

// A row's field as text, what is no string as JSON. Throws DataError that names --by where there is
// none.
std::string field_text(const Json& row, const std::string& by, const std::string& where);

// "12.5 %".
std::string percent_text(double share);
// The columns of a terminal that the text takes, as printable_line() writes it.
size_t columns_of(const std::string& text);
// The text, as printable_line() writes it, with blanks behind it (or before it), up to so many
// columns.
std::string padded(const std::string& text, size_t columns);
std::string right(const std::string& text, size_t columns);

}  // namespace temper::cli
