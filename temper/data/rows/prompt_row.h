// Rows of reinforcement learning: a prompt, and whatever the rewards need to judge its completions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/loader.h"
#include "temper/data/rows/text_format.h"
#include "temper/image/image_span.h"

namespace temper::data {

struct PromptRow {
  std::shared_ptr<const Json> fields;  // of the row, renamed ones included
  std::vector<int32_t> tokens;         // the prompt's, never empty
  std::string where;                   // "FILE:LINE"
  ImageSpans images = {};              // which of the tokens stand for images
  // The conversation that the prompt consists of, with the format's system prompt and its images
  // placed (images/row_images.h), and the template that rendered it; null: the prompt is text or
  // ids.
  std::shared_ptr<const Json> messages = nullptr;
  std::shared_ptr<const ChatTemplate> chat = nullptr;
  bool has_answer = false;  // the row's conversation goes on with answers of the assistant
  std::string group = {};   // TextFormat::groups' name for the row; empty: none
};

// max_length is that of a prompt; truncating keeps its end, as what is asked stands last. A prompt
// that would lose an image, or a part of one, is dropped.
using PromptFormat = TextFormat;

// Reads {"prompt": text or messages, ...}, {"messages": [..], ...}, {"prompt_ids": [..], ...} or
// {"tokens": [..], ...}, or a row of the other formats. The prompt of a conversation ends before
// the assistant's final turns, if it has any: completions are sampled in their place, and only
// `fields` still has them. Messages are rendered with the generation prompt; `tools` of the row go
// to the template. nullopt: too long and dropped. Throws DataError that begins with `where`.
std::optional<PromptRow> read_prompt_row(const PromptFormat& format, Json row,
                                         const std::string& where, bool* truncated);

Loader<PromptRow>::Read prompt_reader(PromptFormat format);

}  // namespace temper::data
