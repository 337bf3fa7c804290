// What is odd about rows, though nothing is wrong with them: counted when they are read once before
// a run.
#pragma once

#include <cstdint>
#include <string>

#include "temper/base/json.h"
#include "temper/data/rows/text_format.h"

namespace temper::data {

class RowNotices {
 public:
  // Rows of one kind: how many, and the first of them.
  struct Kind {
    int64_t rows = 0, first = 0;  // first: its number, as add() was told
    std::string where, what;
  };
  // A prompt, completion, chosen or rejected is the JSON text of messages (has_text_messages).
  Kind text_messages;
  // The prompt is text, that spells no control token, and is read without the chat template that
  // there is.
  Kind text_prompts;
  // A text spells a token that is marked special; `what`: the token.
  Kind control_tokens;
  // The chat template leaves out the row's `tools`, or its messages' `tool_calls`.
  Kind unwritten_tools, unwritten_calls;
  // RowSet::about_held_out of the sources, as a survey of them says.
  std::string held_out;

  // Counts a row as the file has it, which can be read.
  void add(const TextFormat& format, Json row, const std::string& where, int64_t number);
  void add(const RowNotices& others);

  // "3 rows have ...": of kinds that have rows; empty of others.
  std::string about_text_messages() const;
  std::string about_text_prompts() const;
  std::string about_control_tokens(ControlTokens how) const;
  std::string about_tools() const;
};

}  // namespace temper::data
