// The "added_tokens" of a tokenizer.json: found in the text before anything else happens to it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "temper/text/json_field.h"
#include "temper/text/tokenizer/normalizer.h"
#include "temper/text/tokenizer/vocabulary.h"

namespace temper {

struct AddedToken {
  std::string content;
  // the token's text as a decoder prints it; if it is found in normalized text, its normalized
  // content
  std::string decoded;
  int32_t id = 0;
  bool single_word = false;  // matches only where no word character is adjacent
  bool lstrip = false;       // the match includes white space before the token
  bool rstrip = false;       // the match includes white space after the token
  bool normalized = false;   // found in normalized text, not in raw text
  bool special = false;
};

// Strings and their values; finds the leftmost match, and the longest of those.
class TokenTrie {
 public:
  TokenTrie();
  void add(std::string_view text, uint32_t value);  // not empty
  bool empty() const { return nodes_.empty(); }

  struct Match {
    size_t begin, end;
    uint32_t value;
  };
  bool find(std::string_view text, size_t from, Match& match) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint32_t child = kNone, sibling = kNone;
    uint32_t value = kNone;
    unsigned char byte = 0;
  };
  uint32_t child_of(uint32_t node, unsigned char byte) const;
  std::array<uint32_t, 256> roots_;
  std::vector<Node> nodes_;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Ids are those of the vocabulary, or follow behind its size in the order of the file.
  AddedTokens(const JsonField& field, const Vocabulary& vocabulary, const Normalizer& normalizer);

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  // Whether a special token has this spelling.
  bool is_special(std::string_view token) const { return special_.contains(std::string(token)); }
  int32_t end_id() const;  // highest id + 1; 0 without tokens

  // Cuts text into added tokens and what stands between them, in order; a token's part has an id,
  // the others -1. `raw` looks for tokens that are found in raw text, else those found in
  // normalized text. A token that stands behind `mark` is a part of the text between others; empty:
  // none is.
  using Part = std::function<void(int32_t id, size_t begin, size_t end)>;
  void split(std::string_view text, bool raw, const Part& part, std::string_view mark = {}) const;
  // Where the text spells tokens that are marked special, whichever way they are found: the first
  // `most` of them, apart and in order.
  struct Spelled {
    size_t begin, end;
    int32_t id;
  };
  std::vector<Spelled> special_in(std::string_view text, size_t most = SIZE_MAX) const;

 private:
  void add(AddedToken token);

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, uint32_t> by_content_;
  std::unordered_map<int32_t, uint32_t> by_id_;
  std::unordered_set<std::string> special_;
  TokenTrie raw_, normalized_;
};

}  // namespace temper
