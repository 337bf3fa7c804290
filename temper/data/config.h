// The config section `data`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config.h"
#include "temper/data/sft_row.h"

namespace temper::data {

// One file of rows and how often it is drawn from.
struct DataSource {
  std::string path;
  double weight = 1;
  std::string name;  // empty: the path
  void fields(Fields& f);
};

struct DataSection {
  std::vector<DataSource> train;               // empty: not given
  std::vector<DataSource> eval;                // empty: none
  std::map<std::string, std::string> columns;  // what a row's field is called here -> in the file
  int64_t max_length = 1024;
  Overlong overlong = Overlong::kTruncate;
  bool shuffle = true;
  bool packing = true;
  TrainOn train_on = TrainOn::kAuto;
  ConversationMode conversation = ConversationMode::kAuto;
  RowFormat format = RowFormat::kAuto;
  std::string system_prompt;                              // empty: none
  std::string chat_template;                              // a file; empty: the model directory's
  std::map<std::string, std::string> template_variables;  // values as in JSON, or else text
  void fields(Fields& f);

  // What every reader of rows takes from the section.
  void apply_to(TextFormat& format) const;
  // How the chat template is loaded.
  ChatOptions chat_options() const;
};

}  // namespace temper::data
