// Rows of supervised tuning: from any of the formats to a tree of tokens and labels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/images/row_images.h"
#include "temper/data/rows/text_format.h"
#include "temper/data/rows/token_tree.h"
#include "temper/text/chat/conversation.h"

namespace temper::data {

struct SftFormat : TextFormat {
  TrainOn train_on = TrainOn::kAuto;
  ConversationMode conversation = ConversationMode::kAuto;
  // Appended to text and completions that do not end with it, as TRL does;
  // text/tokenizer/special_tokens.h has end_token(), which finds it.
  std::optional<int32_t> eos;
  // Most tokens that are made of a text, and of a completion; 0: as many as max_length needs.
  size_t text_limit = 0;
  std::vector<int32_t> ends;  // all tokens at which the model's sampling ends by itself
  // Sets `eos` and `ends` for the model of a directory. Throws DataError.
  void set_ends(const std::string& directory, std::vector<int32_t> eos_ids);
};

// True where the row trains a token that ends a completion.
template <class Row>
bool trains_end(const SftFormat& format, const Row& row) {
  const auto trains = [&row](int32_t id) { return row.trains(id); };
  return (format.eos && trains(*format.eos)) || std::ranges::any_of(format.ends, trains);
}

// Reads {"messages"}, {"prompt","completion"}, {"text"}, {"input_ids","labels"} or a row of the
// other formats. A conversation that is trained turn by turn is a tree with a path for each turn,
// every one of at most max_length tokens: a longer one loses its end; where a path's target is cut
// to nothing the path is left out. nullopt: a path was longer than max_length and the row is
// dropped, or it would be cut within an image. `truncated` is set when something was cut. A row
// that trains no token says why in `untrained`. Throws DataError that begins with `where`.
std::optional<SftRow> read_sft_row(const SftFormat& format, Json row, const std::string& where,
                                   bool* truncated);

// A row of text or ids, all its tokens: with Overlong::kSplit such a row becomes several.
struct WholeRow {
  TokenPath path;
  std::string group;
  int64_t bytes() const;
  int64_t pieces(int64_t max_length) const;  // of max_length tokens, the last one's rest included
  // The row of one piece, in the order of the tokens. The first token of each has nothing before
  // it.
  SftRow piece(int64_t number, int64_t max_length) const;
};
// nullopt: a row of another kind, which has not been read further. Throws DataError that begins
// with `where`.
std::optional<WholeRow> read_whole_row(const SftFormat& format, Json row, const std::string& where);

// The same for a row of messages, prompt and completion, text or ids in which place_images() has
// placed these images; its group stays empty.
std::optional<SftRow> read_placed_row(const SftFormat& format, const Json& row,
                                      const RowImages& images, const std::string& where,
                                      bool* truncated);

}  // namespace temper::data
