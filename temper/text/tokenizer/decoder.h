// The "decoder" of a tokenizer.json: from tokens back to text.
// Knows ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip and Sequence.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "temper/text/json_field.h"
#include "temper/text/tokenizer/pattern.h"

namespace temper {

class Decoder {
 public:
  Decoder() = default;  // joins tokens by spaces
  explicit Decoder(const JsonField& field);

  // Text of tokens that begin a text, or (at_start false) of some that follow others.
  std::string decode(std::vector<std::string> tokens, bool at_start = true) const;

  // How a text may be decoded in parts.
  enum class Streaming {
    kBytes,      // tokens are bytes (ByteLevel alone): a part may end with any whole character
    kTokens,     // a part may end with any token
    kAfterText,  // a part may end with any token that is no "<0x0A>"
    kWhole       // not at all: some step looks at the whole text
  };
  Streaming streaming() const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Metaspace {
    char32_t replacement;
    bool drop_first;  // the first token loses its replacements instead of getting spaces
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    char32_t content;
    size_t start, stop;  // most characters to strip at the start and at the end
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip>;

  void add(const JsonField& field);

  std::vector<Step> steps_;
  bool joins_by_space_ = true;
};

// The byte that "<0x0A>" stands for, or -1.
int byte_of_fallback_token(std::string_view token);

}  // namespace temper
