#include "temper/serve/token_logprobs.h"

#include <algorithm>

#include "temper/base/error.h"

namespace temper::serve {
namespace {

int64_t count_characters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

TokenTexts::TokenTexts(const Tokenizer* tokenizer, bool as_ids)
    : tokenizer_(as_ids ? nullptr : tokenizer) {
  if (tokenizer_) decoder_.emplace(*tokenizer_);
}

std::string TokenTexts::next(int32_t id) {
  if (!tokenizer_) return temper::str("token_id:", id);
  return tokenizer_->is_special(id) ? alone(id) : decoder_->push(id);
}

std::string TokenTexts::alone(int32_t id) const {
  return tokenizer_ ? tokenizer_->decode({&id, 1}) : temper::str("token_id:", id);
}

ReplyJson TokenTexts::bytes(int32_t id) const {
  if (!tokenizer_) return nullptr;
  ReplyJson out = ReplyJson::array();
  const std::string bytes =
      tokenizer_->is_special(id) ? tokenizer_->token_of(id) : tokenizer_->bytes_of(id);
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

int64_t TokenTexts::offset_before(const std::string& text) {
  const int64_t offset = characters_;
  characters_ += count_characters(text);
  return offset;
}

ReplyJson chat_logprobs(TokenTexts& texts, const Piece& piece) {
  ReplyJson content = ReplyJson::array();
  for (size_t i = 0; i < piece.tokens.size(); ++i) {
    ReplyJson top = ReplyJson::array();
    if (i < piece.top.size())
      for (const auto& [id, logp] : piece.top[i])
        top.push_back({{"token", texts.alone(id)}, {"logprob", logp}, {"bytes", texts.bytes(id)}});
    content.push_back({{"token", texts.next(piece.tokens[i])},
                       {"logprob", piece.logprobs[i]},
                       {"bytes", texts.bytes(piece.tokens[i])},
                       {"top_logprobs", std::move(top)}});
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

ReplyJson completion_logprobs(TokenTexts& texts, const Piece& piece, bool with_top,
                              bool first_unknown) {
  ReplyJson tokens = ReplyJson::array(), values = tokens, tops = tokens, offsets = tokens;
  for (size_t i = 0; i < piece.tokens.size(); ++i) {
    const std::string text = texts.next(piece.tokens[i]);
    const bool unknown = first_unknown && i == 0;
    tokens.push_back(text);
    values.push_back(unknown ? ReplyJson(nullptr) : ReplyJson(piece.logprobs[i]));
    offsets.push_back(texts.offset_before(text));
    if (!with_top) continue;
    // By text: of tokens that look alike the likeliest. The token itself is always among them.
    ReplyJson top = ReplyJson::object();
    for (const auto& [id, logp] : piece.top[i]) top.emplace(texts.alone(id), logp);
    if (!unknown) top.emplace(texts.alone(piece.tokens[i]), piece.logprobs[i]);
    tops.push_back(unknown ? ReplyJson(nullptr) : std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", with_top ? std::move(tops) : ReplyJson(nullptr)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace temper::serve
