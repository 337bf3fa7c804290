#include "temper/cli/data/data_tools.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/images/row_files.h"
#include "temper/data/read/tf_record.h"
#include "temper/data/rows/row_texts.h"
#include "temper/metrics/format.h"
#include "temper/text/unicode.h"

namespace temper::cli {

void DataInputs::add_to(Flags& f) {
  Flag& input = f.add("--input", inputs,
                      "files, directories or patterns of rows, data set ids "
                      "(openai/gsm8k:main/test), or - for standard input",
                      required());
  input.words = "IN";
  input.several = true;
  f.add("--columns", columns,
        "names of the rows' fields in the file, as in prompt=question or '{prompt: question}'; "
        "rows are written with the names that they have")
      .several = true;
}

data::RowList DataInputs::open() const {
  catch_interrupts();
  std::vector<std::string> sources = inputs;
  std::replace(sources.begin(), sources.end(), std::string("-"), std::string("/dev/stdin"));
  return data::RowList(sources, columns);
}

namespace {

std::string folder_of(const std::string& file) {
  if (file.starts_with("/dev/")) return {};
  return std::filesystem::path(file).parent_path().string();
}

}  // namespace

std::string directory_of(const data::RowList& rows, int64_t row) {
  return folder_of(rows.file(row));
}

void move_images(Json& row, const std::string& from, const std::string& output) {
  if (output != "-") data::move_image_paths(row, {}, from, folder_of(output));
}

std::string line_for(const std::string& output, const DataInputs& inputs, const data::RowList& rows,
                     int64_t row) {
  std::string line = rows.line(row);
  // Most rows have no field of that name, and need not be parsed.
  if (output == "-" || (inputs.columns.empty() && line.find("image") == line.npos)) return line;
  Json json = rows.row(row);
  const bool moved =
      data::move_image_paths(json, inputs.columns, directory_of(rows, row), folder_of(output));
  return moved ? dump_json(json) : line;
}

Json comparable_row(const DataInputs& inputs, const data::RowList& rows, int64_t row) {
  Json json = rows.renamed(row);
  const std::string directory = directory_of(rows, row);
  for (const data::Columns& columns : {data::Columns(), inputs.columns})
    data::replace_images_by_digests(json, columns, directory);
  return json;
}

std::string images_of_row(const DataInputs& inputs, const Json& row, const std::string& directory) {
  return data::image_digests(row, inputs.columns, directory);
}

void GroupFlags::add_to(Flags& f) {
  f.add("--field", field, "group rows by this field; a path like meta.domain works");
  f.add("--rules", rules,
        "group rows by a file (YAML or JSON) of {domain: {keywords: [..], patterns: [..]}}; "
        "without it and --field: the six built-in domains");
  f.excludes("--rules", {"--field"});
}

void check_figures_apart(const char* tool, bool json, const std::string& output) {
  check<ConfigError>(!json || output != "-", "data ", tool,
                     ": --json and the rows cannot both go to standard output");
}

void check_rows_output(const std::string& output, const data::RowList& rows,
                       const std::string& flag) {
  if (output == "-") return;
  check<ConfigError>(
      !output.ends_with(".csv") && !output.ends_with(".tsv") && !data::is_tf_record(output), flag,
      " ", output,
      ": expected a name that ends with .jsonl, .jsonl.gz, .jsonl.zst, .json or .parquet");
  for (const std::string& file : rows.files()) {
    std::error_code none;
    check<ConfigError>(!std::filesystem::equivalent(file, output, none), output,
                       ": is the input, which the output would replace; choose another name");
  }
}

std::ostream& beside(const std::string& output) { return output == "-" ? std::cerr : std::cout; }

data::GroupedRows grouped(const data::RowGroups& by, const data::RowList& rows) {
  data::GroupCounter counter(by);
  each_row(
      "grouped", rows.size(), [&](int64_t i) { return by.of(rows.renamed(i), rows.where(i)); },
      [&](int64_t i, const std::string& name) { counter.add(name, rows.where(i)); });
  return counter.take();
}

std::string percent_text(double share) { return format_fixed(100 * share, 1) + " %"; }

size_t columns_of(const std::string& text) {
  const std::string shown = printable_line(text);
  return static_cast<size_t>(
      std::count_if(shown.begin(), shown.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string field_text(const Json& row, const std::string& by, const std::string& where) {
  const Json* const value = data::find_field(row, by);
  check<DataError>(value != nullptr, where, ": no `", by, "`, which --by names");
  return value->is_string() ? value->get<std::string>() : dump_json(*value);
}

std::string padded(const std::string& text, size_t columns) {
  return printable_line(text) + std::string(columns - std::min(columns, columns_of(text)), ' ');
}

std::string right(const std::string& text, size_t columns) {
  return std::string(columns - std::min(columns, columns_of(text)), ' ') + printable_line(text);
}

}  // namespace temper::cli
