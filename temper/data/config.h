// The config section `data`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/data/images/image_format.h"
#include "temper/data/read/row_set.h"
#include "temper/data/rows/sft_row.h"

namespace temper::data {

// One source of rows and how often it is drawn from.
struct DataSource {
  std::string path;  // a file, a directory of them, or a pattern (*, ?, [..])
  std::optional<double> weight;
  std::string name;                            // empty: the path
  std::optional<int64_t> limit;                // only the first so many rows
  std::map<std::string, std::string> columns;  // empty: DataSection::columns
  RowFormat format = RowFormat::kAuto;         // kAuto: DataSection::format
  void fields(Fields& f);
};

// Shares of groups of rows, and metrics by group.
struct BalanceSection {
  // kReport: rows as they are, metrics by group. kUnder and kOver: as BalanceMode, and the metrics.
  enum class Mode { kNone, kReport, kUnder, kOver };
  Mode mode = Mode::kNone;
  std::string field, rules;                   // both empty: the built-in domains
  std::map<std::string, std::string> target;  // shares, as text
  void fields(Fields& f);

  bool groups() const { return mode != Mode::kNone; }
};

struct DataSection {
  std::vector<DataSource> train;               // empty: not given
  std::vector<DataSource> eval;                // empty: none
  double validation_fraction = 0;              // of each source of `train`, held out of it
  BalanceSection balance;                      // of each source of `train`
  std::map<std::string, std::string> columns;  // what a row's field is called here -> in the file
  int64_t max_length = 1024;
  Overlong overlong = Overlong::kTruncate;
  bool shuffle = true;
  bool packing = true;
  TrainOn train_on = TrainOn::kAuto;
  ConversationMode conversation = ConversationMode::kAuto;
  RowFormat format = RowFormat::kAuto;
  PromptsAs prompts_as = PromptsAs::kText;
  ControlTokens control_tokens = ControlTokens::kParse;
  std::string system_prompt;                              // empty: none
  std::string chat_template;                              // a file; empty: the model directory's
  std::map<std::string, std::string> template_variables;  // values as in JSON, or else text
  std::optional<std::string> template_date;               // as in template_date.h; null: begun
  int64_t max_image_bytes = 20'000'000;                   // of a file
  std::optional<int64_t> min_image_pixels, max_image_pixels;  // null: the model's
  std::string image_tag = "<image>";                          // ImageOptions::tag
  // No key: when the run began, on all its ranks and after every resume; empty: now.
  std::string begun;
  // No key: the run goes on from a checkpoint of a version that held out rows by their lines, not
  // by their prompts, and took no notice of weights that are all equal.
  bool earlier_rules = false;
  // No key: RowBalance::on_row.
  std::function<void(int64_t rows)> on_balanced_row = {};
  void fields(Fields& f);

  // What every reader of rows takes from the section.
  void apply_to(TextFormat& format) const;
  ImageOptions image_options() const;
  // How the chat template is loaded.
  ChatOptions chat_options() const;
};

// A line about what earlier_rules changes in this run, or about equal weights, which earlier
// versions took as none; empty: nothing.
std::string about_earlier_rules(const DataSection& section);

// data.train as a loader takes it, without what data.validation_fraction holds out.
std::vector<SourceSpec> training_sources(const DataSection& section, uint64_t seed);

// The sets of rows to evaluate on: data.eval as written, then what is held out of data.train: a set
// called "validation", or, of several sources, "validation/NAME" each.
std::vector<SourceSpec> evaluation_sources(const DataSection& section, uint64_t seed);

}  // namespace temper::data
