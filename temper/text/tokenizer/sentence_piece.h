// SentencePiece's models, `tokenizer.model`, for directories without a tokenizer.json. Kudo and
// Richardson, "SentencePiece: A simple and language independent subword tokenizer and detokenizer
// for Neural Text Processing", 2018. The text is cut by the library of that name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "temper/text/tokenizer/tokenizer_file.h"

namespace temper {

class SentencePiece {
 public:
  // Reads the bytes of a model; `where` is its path, for errors. Throws DataError.
  SentencePiece(std::string model, const std::string& where);
  ~SentencePiece();
  SentencePiece(SentencePiece&&) noexcept;

  struct Piece {
    std::string text;
    bool control = false;  // control or unknown piece: the model never finds it in text
  };
  const std::vector<Piece>& pieces() const { return pieces_; }  // by id

  // Whether the model puts a space before a text.
  bool adds_space() const { return adds_space_; }
  // The model's own special pieces; -1: none.
  int32_t unknown() const;
  int32_t begin() const;
  int32_t end() const;

  // Appends the ids of a text, where `space` with the space before it that the model puts there,
  // unless the text begins with one.
  void encode(std::string_view text, bool space, std::vector<int32_t>& out) const;

 private:
  struct Impl;
  void read_model(std::string_view model);
  std::unique_ptr<Impl> impl_;
  std::vector<Piece> pieces_;
  bool adds_space_ = true;
  bool strips_ = true;  // spaces at the ends of a text are none of its own
  std::string where_;
};

// The equivalent of a tokenizer.json for this model in this directory: its pieces as the
// vocabulary, the added tokens of tokenizer_config.json, a decoder, and the special tokens around a
// text (add_bos_token, by default true; add_eos_token, by default false). Throws DataError.
TokenizerFile tokenizer_file_of(const SentencePiece& model, const std::string& model_dir);

}  // namespace temper
