// Rows of supervised tuning: from any of the formats to tokens and labels.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/token_tree.h"
#include "temper/text/chat_template.h"
#include "temper/text/conversation.h"
#include "temper/text/tokenizer.h"

namespace temper::data {

enum class Overlong { kTruncate, kDrop, kError };

struct SftFormat {
  std::shared_ptr<const Tokenizer> tokenizer;  // null: rows hold ids
  std::shared_ptr<const ChatTemplate> chat;    // null: no messages
  std::map<std::string, std::string> columns;  // the format's field -> the row's field
  TrainOn train_on = TrainOn::kAuto;
  int64_t max_length = 1024;
  Overlong overlong = Overlong::kTruncate;
  int64_t vocabulary = 0;
  std::optional<int32_t>
      eos;  // appended to text and completions that do not end with it, as TRL does
};

// Reads {"messages"}, {"prompt","completion"}, {"text"} or {"input_ids","labels"}. nullopt: longer
// than max_length and dropped. `truncated` is set when it was cut. Throws DataError that begins
// with `where`.
std::optional<SftRow> read_sft_row(const SftFormat& format, Json row, const std::string& where,
                                   bool* truncated);

}  // namespace temper::data
