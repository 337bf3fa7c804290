// Tokenizers of Hugging Face: `tokenizer.json` in, the ids that the `tokenizers` library gives out,
// for the byte-pair models that Llama, Qwen and Gemma use. A file that asks for anything else is
// refused by name, never approximated. Older directories have a `tokenizer.model` instead, which
// the SentencePiece library reads; its ids are those of transformers 5.
//
// Known to differ: Metaspace with prepend_scheme "first" behind a pre-tokenizer that cuts between
// what a normalizer put at the very start and the text; \S, \W, \D or \P{..} inside a class of a
// regular expression, for characters that Unicode 15 and 16 added; Replace with a pattern that
// matches nothing at the very start.
//
// A file's settings for truncation and padding are ignored, as transformers does unless asked.
//
// Text is UTF-8. Invalid sequences count as U+FFFD, one for each maximal broken part (Unicode's
// recommended practice, what Python's errors="replace" does). A Tokenizer is immutable and may be
// used from any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

class Tokenizer {
 public:
  // Reads a tokenizer.json. Throws DataError naming the file and the place in its JSON.
  static std::shared_ptr<const Tokenizer> load(const std::string& path);

  // The tokenizer of a model directory: its tokenizer.json, else its tokenizer.model
  // (SentencePiece's); null where it has neither. Throws DataError.
  static std::shared_ptr<const Tokenizer> load_directory(const std::string& model_dir);

  // Parses the text of a tokenizer.json; `where` stands for the path in errors.
  static std::shared_ptr<const Tokenizer> parse(std::string_view json, const std::string& where);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of the text. With add_special_tokens the file's post-processor adds its own (a
  // beginning-of-text token, say).
  std::vector<int32_t> encode(std::string_view utf8, bool add_special_tokens = false) const;

  // The first ids of encode(text): all where there are fewer than `limit`, otherwise at least that
  // many, without tokenizing the rest of the text. (A SentencePiece model reads all of it.)
  std::vector<int32_t> encode_first(std::string_view utf8, size_t limit) const {
    return encode_first(utf8, limit, Quotes::kNone);
  }

  // A text may be a mixture of what spells control tokens on purpose, as a chat template does, and
  // of what must not: quoted() puts a mark (U+FDD0, which is no character) before each token marked
  // special that its text spells, and with kMarked these are read as ordinary text.
  enum class Quotes { kNone, kMarked };
  std::vector<int32_t> encode_first(std::string_view utf8, size_t limit, Quotes quotes) const;
  std::string quoted(std::string_view utf8) const;
  static std::string unquoted(std::string_view text);  // without the marks
  // The first token marked special that the text spells; none: it spells none.
  std::optional<int32_t> control_token_in(std::string_view utf8) const;

  // The special tokens that the post-processor puts before a text and behind it.
  std::vector<int32_t> tokens_before_text() const;
  std::vector<int32_t> tokens_after_text() const;

  // Text of the ids: unknown ids are dropped, bytes that are no UTF-8 become U+FFFD. With
  // skip_special_tokens, added tokens marked special are dropped as well.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  // Whether each token adds bytes of its own to a text, whatever follows (or, to a character's byte
  // tokens, follows at once).
  bool decodes_in_parts() const;
  // These bytes, of a text that has begun or (first) that begins with the token; perhaps a part of
  // a character. Empty for special tokens and unknown ids.
  std::string bytes_of(int32_t id, bool first = false) const;

  // The id of a token as the vocabulary spells it (byte-level: "Ġthe"), added tokens included.
  std::optional<int32_t> id_of(std::string_view token) const;

  // The token's spelling in the vocabulary; empty when the id is unknown.
  std::string token_of(int32_t id) const;

  // True for an added token marked special.
  bool is_special(int32_t id) const;

  // The highest id + 1.
  int32_t vocab_size() const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Decodes ids one by one. What push() and finish() return, joined, is decode() of all ids; a
// character whose bytes are spread over tokens is held back until it is whole. The Tokenizer must
// outlive the decoder.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);

  // Appends one token; returns the text that has become final.
  std::string push(int32_t id);

  // Returns what was held back; the decoder is then as new.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  bool at_start_ = true;  // no text was returned yet
  std::string bytes_;     // bytes of an unfinished character; byte-level vocabularies only
  std::vector<std::string> tokens_;  // tokens whose text may still change; other vocabularies only
};

}  // namespace temper
