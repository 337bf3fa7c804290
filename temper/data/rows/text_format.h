// What every reader of rows shares: the tokenizer and template that make tokens of text and
// messages, the names of the fields, and the formats that conversations come in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/rows/row_format.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::data {

class RowGroups;
struct ImageFormat;
struct RowImage;
using RowImages = std::vector<RowImage>;

// What happens to rows that are longer than max_length. kSplit: a row of text or ids becomes
// consecutive rows of max_length tokens, of which the last may be shorter; others are errors.
enum class Overlong { kTruncate, kDrop, kError, kSplit };

// What a text prompt is. kText: text, without the chat template. kUser: the user's message, and the
// text that completes it the assistant's.
enum class PromptsAs { kText, kUser };

// What a row's text that spells a token marked special is: that token, or ordinary text.
enum class ControlTokens { kParse, kText };

struct TextFormat {
  std::shared_ptr<const Tokenizer> tokenizer;  // null: rows hold ids
  std::shared_ptr<const ChatTemplate> chat;    // null: no messages
  std::map<std::string, std::string> columns;  // the format's field -> the row's field
  RowFormat format = RowFormat::kAuto;
  PromptsAs prompts_as = PromptsAs::kText;
  ControlTokens control_tokens = ControlTokens::kParse;
  std::string system_prompt;  // put before conversations that begin without one; empty: none
  int64_t max_length = 1024;
  Overlong overlong = Overlong::kTruncate;
  int64_t vocabulary = 0;
  // What groups rows for metrics of their own; null: nothing does.
  std::shared_ptr<const RowGroups> groups;
  bool ungrouped = false;  // a row without the field that groups rows is in no group, and no error
  // How images are read (images/image_format.h); null: the model sees none, and they are errors.
  std::shared_ptr<const ImageFormat> images;
  std::string directory;  // of the row's file: paths of its images are relative to it
  // What to do where messages need a template and there is none; a config has a key for it.
  const char* no_chat = "put one there as chat_template.jinja";
};

// The most tokens that reading a row makes of a text: max_length + 1, which is enough to tell that
// it is too long, so that a text of megabytes is not tokenized to its end. Where a longer row is an
// error, all of them, as the message says how many there are, and where it is split.
size_t tokens_needed(const TextFormat& format);

// Throws a DataError for a row of so many tokens, more than max_length, unless it is truncated.
void check_truncates(const TextFormat& format, const std::string& where, const char* what,
                     int64_t tokens);

// The tokenizer or the template, or a DataError that begins with `where` and says what is missing.
const Tokenizer& tokenizer_of(const TextFormat& format, const std::string& where);
const ChatTemplate& chat_of(const TextFormat& format, const std::string& where);

// The row's messages as the template reads them (join_unread_parts), their parts without null
// members. Throws DataError for parts that are neither text nor images.
void join_text_parts(Json& row, const ChatTemplate* chat, const std::string& where);

// The row with its fields renamed and, where it holds a conversation of another format, with that
// conversation as `messages` (an Alpaca row where there is no chat template: as `prompt` and
// `completion`); a text prompt is a message where prompts_as says so. Throws DataError.
Json normalized_row(const TextFormat& format, Json row, const std::string& where);

// prompts_as: kUser makes a message of a text prompt, and then of a text completion, chosen and
// rejected. Throws DataError where there is no chat template.
void prompt_as_message(const TextFormat& format, Json& row, const std::string& where);
void answers_as_messages(const TextFormat& format, Json& row);

// How texts of rows are tokenized, and a row's value for that: with control_tokens: kText, all its
// strings are Tokenizer::quoted().
Tokenizer::Quotes quotes_of(const TextFormat& format);
Json quoted(const TextFormat& format, Json value);

// The name of the group of a row as the file has it, by which data.balance counts it ("(empty)" for
// an empty one); empty where nothing groups rows, or not this one. Throws DataError.
std::string group_of(const TextFormat& format, const Json& row, const std::string& where);

// The messages with the format's system prompt before them, unless they begin with one.
Json with_system_prompt(const TextFormat& format, const Json& messages);

// The row's `tools`, or null.
Json tools_of(const Json& row);

// The tokens of a prompt, from a row that normalized_row() made: {"prompt": text or messages},
// {"messages"}, {"prompt_ids"} or {"tokens"}. Messages are rendered with the generation prompt.
// Text gets the special tokens that the tokenizer adds before a text and none that it adds after
// one, as a completion follows. Of a text of more than `limit` tokens those beyond the limit may be
// left out. `images`: those of the row, which place_images() has placed in its messages and whose
// placeholders a text has. Throws DataError that begins with `where`.
std::vector<int32_t> prompt_tokens(const TextFormat& format, const Json& row,
                                   const std::string& where, size_t limit = SIZE_MAX,
                                   const RowImages* images = nullptr);

}  // namespace temper::data
