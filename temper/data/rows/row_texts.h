// What a row of any format asks and answers, as text: without a tokenizer and without a chat
// template. Tools that compare or sort rows go by it; no training does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"

namespace temper::data {

struct RowTexts {
  std::string prompt;  // all of a row that has no answer of its own
  std::string answer;  // of a preference pair, both sides

  std::string whole() const;  // the prompt, and below it the answer
};

// The texts of {"prompt", ...} and {"messages"} (a conversation's answer is the assistant's final
// turns), ShareGPT, Alpaca, {"question", ...}, pairs without a prompt, {"text"}, {"input_ids"} and
// other rows of tokens, whose "words" are ids. A conversation of one message is that message's
// text; of several, each begins with its role. Of a row with none of these fields, the prompt is
// every text in it. Nothing is an error.
RowTexts texts_of(const Json& row);

using temper::find_field;

// The words of a text, in lower case: runs of letters, digits and underscores; each character of
// scripts that are written without spaces (Han, Kana) is a word.
class Words {
 public:
  explicit Words(std::string_view text);
  const std::vector<std::string_view>& all() const { return words_; }

 private:
  std::string text_;
  std::vector<std::string_view> words_;
};

// Hashes that stay the same in all versions: of a row's fields, whatever their order; of a text,
// whatever its white space.
struct RowHash {
  uint64_t low = 0, high = 0;
  bool operator==(const RowHash&) const = default;
  auto operator<=>(const RowHash&) const = default;
};
RowHash hash_of_fields(const Json& row);
RowHash hash_of_text(std::string_view text, uint64_t seed = 0);

}  // namespace temper::data

template <>
struct std::hash<temper::data::RowHash> {
  size_t operator()(const temper::data::RowHash& hash) const { return hash.low; }
};
