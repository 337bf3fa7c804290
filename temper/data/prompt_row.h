// Rows of reinforcement learning: a prompt, and whatever the rewards need to judge its completions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/loader.h"
#include "temper/text/chat_template.h"
#include "temper/text/tokenizer.h"

namespace temper::data {

struct PromptRow {
  std::shared_ptr<const Json> fields;  // of the row, renamed ones included
  std::vector<int32_t> tokens;         // the prompt's, never empty
  std::string where;                   // "FILE:LINE"
};

struct PromptFormat {
  std::shared_ptr<const Tokenizer> tokenizer;  // null: rows hold ids
  std::shared_ptr<const ChatTemplate> chat;    // null: no messages
  std::map<std::string, std::string> columns;  // the format's field -> the row's field
  int64_t max_length = 1024;                   // of a prompt, in tokens
  Overlong overlong = Overlong::kTruncate;     // truncate keeps the end: what is asked stands last
  int64_t vocabulary = 0;
};

// Reads {"prompt": text or messages, ...} or {"prompt_ids": [..], ...}. Messages are rendered with
// the generation prompt; `tools` of the row go to the template. nullopt: too long and dropped.
// Throws DataError that begins with `where`.
std::optional<PromptRow> read_prompt_row(const PromptFormat& format, Json row,
                                         const std::string& where, bool* truncated);

Loader<PromptRow>::Read prompt_reader(PromptFormat format);

}  // namespace temper::data
