// The "pre_tokenizer" of a tokenizer.json: cuts text into the words that byte-pair merges stay
// within. Knows Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit and
// Sequence.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "temper/text/json_field.h"
#include "temper/text/tokenizer/pattern.h"

namespace temper {

class Pretokenizer {
 public:
  // A piece of text, never empty; `at_start`: it begins where the whole input does.
  struct Piece {
    std::string_view text;
    bool at_start;
  };
  using Sink = std::function<void(Piece)>;

  Pretokenizer() = default;  // the whole text is one word
  explicit Pretokenizer(const JsonField& field);

  // True when the words that run() gives are bytes, to be looked up in the byte-level alphabet.
  bool gives_bytes() const { return gives_bytes_; }

  // Calls `word` for each word of the piece in order; the text is valid during the call.
  void run(Piece piece, const Sink& word) const { run_from(0, piece, word); }

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class PrependScheme { kAlways, kFirst, kNever };
  struct Split {
    Pattern pattern;
    Behavior behavior;
    bool invert;
  };
  struct ByteLevel {
    bool add_prefix_space;
    std::optional<Pattern> words;  // GPT-2's pattern where use_regex is on
  };
  struct Metaspace {
    std::string replacement;
    PrependScheme prepend;
    bool split;
  };
  struct Whitespace {};
  using Step = std::variant<Split, ByteLevel, Metaspace, Whitespace>;

  static Behavior parse_behavior(const JsonField& field);
  static Metaspace parse_metaspace(const JsonField& field);
  void add(const JsonField& field);

  void run_from(size_t step, Piece piece, const Sink& word) const;
  void run_byte_level(const ByteLevel& step, size_t next, Piece piece, const Sink& word) const;
  void run_metaspace(const Metaspace& step, size_t next, Piece piece, const Sink& word) const;
  static void split(const Pattern& pattern, Behavior behavior, bool invert, Piece piece,
                    const Sink& sink);

  std::vector<Step> steps_;
  bool gives_bytes_ = false;
};

}  // namespace temper
