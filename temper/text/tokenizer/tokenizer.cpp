#include "temper/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/text/json_field.h"
#include "temper/text/tokenizer/added_tokens.h"
#include "temper/text/tokenizer/bpe.h"
#include "temper/text/tokenizer/byte_level.h"
#include "temper/text/tokenizer/decoder.h"
#include "temper/text/tokenizer/normalizer.h"
#include "temper/text/tokenizer/post_processor.h"
#include "temper/text/tokenizer/pretokenizer.h"
#include "temper/text/tokenizer/sentence_piece.h"
#include "temper/text/tokenizer/special_tokens.h"
#include "temper/text/tokenizer/tokenizer_file.h"
#include "temper/text/unicode.h"

namespace temper {
namespace {

BpeOptions parse_options(const JsonField& model) {
  if (model.find("type") && model.type() != "BPE") model.unsupported("model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto affix = model.find(key); affix && !affix->text().empty())
      affix->fail("is not supported");
  if (const auto dropout = model.find("dropout"); dropout && !dropout->is_zero())
    dropout->fail("is not supported");
  BpeOptions options;
  if (const auto token = model.find("unk_token")) options.unk_token = token->text();
  options.fuse_unk = model.flag_or("fuse_unk", false);
  options.byte_fallback = model.flag_or("byte_fallback", false);
  options.ignore_merges = model.flag_or("ignore_merges", false);
  return options;
}

Bpe parse_model(TokenizerFile& file, const JsonField& model) {
  BpeOptions options = parse_options(model);
  if (!file.has_vocabulary) model.fail("\"vocab\" is missing");
  if (!file.has_merges) model.fail("\"merges\" is missing");
  return Bpe(std::move(file.vocabulary), file.merges, std::move(options), model.where());
}

template <class Component>
Component parse_component(const JsonField& root, std::string_view key) {
  const auto field = root.find(key);
  return field ? Component(*field) : Component();
}

}  // namespace

struct Tokenizer::Impl {
  Impl(TokenizerFile& file, const JsonField& root)
      : model(parse_model(file, root["model"])),
        normalizer(parse_component<Normalizer>(root, "normalizer")),
        pretokenizer(parse_component<Pretokenizer>(root, "pre_tokenizer")),
        post_processor(parse_component<PostProcessor>(root, "post_processor")),
        decoder(parse_component<Decoder>(root, "decoder")),
        streaming(decoder.streaming()) {
    if (const auto tokens = root.find("added_tokens"))
      added = AddedTokens(*tokens, model.vocabulary(), normalizer);
  }

  // Appends ids of the text, without special tokens, until there are `limit`. Tokens behind `mark`
  // are text, and the marks are not; empty: there are none.
  std::vector<int32_t> encode(std::string_view text, size_t limit, std::string_view mark) const;
  // Text between added tokens. Throws Enough.
  void encode_plain(std::string_view text, bool at_start, size_t limit, std::string_view mark,
                    std::vector<int32_t>& out) const;
  void encode_normalized(std::string_view text, bool at_start, size_t limit, std::string_view mark,
                         std::vector<int32_t>& out) const;
  void encode_pieces(std::string_view text, bool space, std::string_view mark,
                     std::vector<int32_t>& out) const;

  // The text that the decoder gets for an id; none if it is unknown or to be skipped.
  std::optional<std::string> decoded_token(int32_t id, bool skip_special_tokens) const;

  Bpe model;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  Decoder::Streaming streaming;
  AddedTokens added;
  // Where the model is SentencePiece's, it alone cuts the text; the members above know its pieces.
  std::optional<SentencePiece> pieces;
  bool space_everywhere = false;  // the model's space also follows each added token
};

namespace {

constexpr std::string_view kMark = "\xEF\xB7\x90";  // U+FDD0

std::string without_marks(std::string_view text) {
  std::string out;
  for (size_t at = text.find(kMark); at != text.npos; at = text.find(kMark)) {
    out += text.substr(0, at);
    text.remove_prefix(at + kMark.size());
  }
  return out.append(text);
}

// Thrown when there are as many ids as were asked for, as words come from nested callbacks. Never
// leaves this file.
struct Enough {};
}  // namespace

std::vector<int32_t> Tokenizer::Impl::encode(std::string_view text, size_t limit,
                                             std::string_view mark) const {
  std::string repaired;
  if (valid_utf8_prefix(text) != text.size()) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  std::vector<int32_t> out;
  out.reserve(std::min(text.size() / 3, limit));
  const AddedTokens::Part part = [&](int32_t id, size_t begin, size_t end) {
    if (out.size() >= limit) throw Enough();
    if (id >= 0)
      out.push_back(id);
    else
      encode_plain(text.substr(begin, end - begin), begin == 0, limit, mark, out);
  };
  try {
    added.split(text, true, part, mark);
  } catch (const Enough&) {
    // The caller needs no more ids.
  }
  return out;
}

void Tokenizer::Impl::encode_plain(std::string_view text, bool at_start, size_t limit,
                                   std::string_view mark, std::vector<int32_t>& out) const {
  if (pieces) return encode_pieces(text, at_start || space_everywhere, mark, out);
  if (normalizer.empty()) return encode_normalized(text, at_start, limit, mark, out);
  const std::string normalized = normalizer.apply(text, at_start);
  encode_normalized(normalized, at_start, limit, mark, out);
}

// SentencePiece finds pieces that its model calls the user's anywhere: a text is cut behind the
// first character of each that is marked.
void Tokenizer::Impl::encode_pieces(std::string_view text, bool space, std::string_view mark,
                                    std::vector<int32_t>& out) const {
  for (size_t at = 0; !mark.empty() && (at = text.find(mark, at)) != text.npos;) {
    size_t end = at + mark.size();
    if (end < text.size()) next_char(text, end);
    pieces->encode(without_marks(text.substr(0, end)), space, out);
    space = false;
    text.remove_prefix(end);
    at = 0;
  }
  if (!text.empty()) pieces->encode(text, space, out);
}

void Tokenizer::Impl::encode_normalized(std::string_view text, bool at_start, size_t limit,
                                        std::string_view mark, std::vector<int32_t>& out) const {
  const bool bytes = pretokenizer.gives_bytes();
  const Pretokenizer::Sink word = [&](Pretokenizer::Piece piece) {
    if (out.size() >= limit) throw Enough();
    model.encode(piece.text, bytes, limit, out);
  };
  const AddedTokens::Part part = [&](int32_t id, size_t begin, size_t end) {
    if (id >= 0) {
      out.push_back(id);
      return;
    }
    const std::string_view plain = text.substr(begin, end - begin);
    const bool first = at_start && begin == 0;
    if (mark.empty() || plain.find(mark) == plain.npos)
      return pretokenizer.run({plain, first}, word);
    const std::string unmarked = without_marks(plain);
    if (!unmarked.empty()) pretokenizer.run({unmarked, first}, word);
  };
  added.split(text, false, part, mark);
}

std::optional<std::string> Tokenizer::Impl::decoded_token(int32_t id,
                                                          bool skip_special_tokens) const {
  std::string token;
  if (const AddedToken* known = added.find(id)) {
    token = known->decoded;
  } else if (model.vocabulary().has(id)) {
    token = model.vocabulary().token(id);
  } else {
    return std::nullopt;
  }
  if (skip_special_tokens && added.is_special(token)) return std::nullopt;
  return token;
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& path) {
  return parse(read_file(path, size_t{1} << 30), path);
}

std::shared_ptr<const Tokenizer> Tokenizer::parse(std::string_view json, const std::string& where) {
  TokenizerFile file = parse_tokenizer_file(json, where);
  const Json rest = std::move(file.rest);
  auto impl = std::make_unique<const Impl>(file, JsonField(rest, where));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

std::shared_ptr<const Tokenizer> Tokenizer::load_directory(const std::string& model_dir) {
  const std::string json = model_dir + "/tokenizer.json", model = model_dir + "/tokenizer.model";
  if (is_model_file(json)) return load(json);
  if (!is_model_file(model)) return nullptr;
  SentencePiece pieces(read_file(model, size_t{1} << 28), model);
  TokenizerFile file = tokenizer_file_of(pieces, model_dir);
  const Json rest = std::move(file.rest);
  auto impl = std::make_unique<Impl>(file, JsonField(rest, model));
  impl->pieces.emplace(std::move(pieces));
  // transformers' `legacy`, since its version 5 false where nothing is said.
  const Json config = read_model_file(model_dir, "tokenizer_config.json");
  const auto legacy = config.find("legacy");
  impl->space_everywhere = legacy != config.end() && *legacy == true;
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view utf8, bool add_special_tokens) const {
  std::vector<int32_t> out = impl_->encode(utf8, SIZE_MAX, {});
  return add_special_tokens ? impl_->post_processor.apply(std::move(out)) : out;
}

std::vector<int32_t> Tokenizer::encode_first(std::string_view utf8, size_t limit,
                                             Quotes quotes) const {
  return impl_->encode(utf8, limit, quotes == Quotes::kMarked ? kMark : std::string_view());
}

std::string Tokenizer::quoted(std::string_view utf8) const {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string text;  // a mark of its own is no character either
  for (size_t at = utf8.find(kMark); at != utf8.npos; at = utf8.find(kMark)) {
    text.append(utf8.substr(0, at)).append(kReplacement);
    utf8.remove_prefix(at + kMark.size());
  }
  text += utf8;
  std::string out;
  size_t done = 0;
  for (const AddedTokens::Spelled& found : impl_->added.special_in(text)) {
    out.append(text, done, found.begin - done).append(kMark);
    out.append(text, found.begin, found.end - found.begin);
    done = found.end;
  }
  return out.append(text, done);
}

std::string Tokenizer::unquoted(std::string_view text) { return without_marks(text); }

std::optional<int32_t> Tokenizer::control_token_in(std::string_view utf8) const {
  const std::vector<AddedTokens::Spelled> found = impl_->added.special_in(utf8, 1);
  return found.empty() ? std::nullopt : std::optional(found[0].id);
}

std::vector<int32_t> Tokenizer::tokens_before_text() const {
  return impl_->post_processor.before();
}
std::vector<int32_t> Tokenizer::tokens_after_text() const { return impl_->post_processor.after(); }

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids)
    if (auto token = impl_->decoded_token(id, skip_special_tokens))
      tokens.push_back(*std::move(token));
  return impl_->decoder.decode(std::move(tokens));
}

bool Tokenizer::decodes_in_parts() const { return impl_->streaming != Decoder::Streaming::kWhole; }

std::string Tokenizer::bytes_of(int32_t id, bool first) const {
  const auto token = impl_->decoded_token(id, true);
  if (!token) return {};
  if (impl_->streaming == Decoder::Streaming::kBytes) return from_byte_level(*token);
  const int byte = byte_of_fallback_token(*token);
  if (impl_->streaming == Decoder::Streaming::kAfterText && byte >= 0x80)
    return std::string(1, static_cast<char>(byte));
  return impl_->decoder.decode({*token}, first);
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* known = impl_->added.find(token)) return known->id;
  return impl_->model.vocabulary().find(token);
}

std::string Tokenizer::token_of(int32_t id) const {
  if (const AddedToken* known = impl_->added.find(id)) return known->content;
  return std::string(impl_->model.vocabulary().token(id));
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* known = impl_->added.find(id);
  return known && known->special;
}

int32_t Tokenizer::vocab_size() const {
  return std::max(impl_->model.vocabulary().end_id(), impl_->added.end_id());
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::push(int32_t id) {
  const Tokenizer::Impl& impl = *tokenizer_->impl_;
  auto token = impl.decoded_token(id, skip_special_tokens_);
  if (!token) return {};
  if (impl.streaming == Decoder::Streaming::kBytes) {
    bytes_ += from_byte_level(*token);
    size_t tail = 0;
    std::string text = repair_utf8(bytes_, true, &tail);
    bytes_.erase(0, bytes_.size() - tail);
    return text;
  }
  const bool byte = byte_of_fallback_token(*token) >= 0;
  tokens_.push_back(*std::move(token));
  if (impl.streaming == Decoder::Streaming::kWhole ||
      (impl.streaming == Decoder::Streaming::kAfterText && byte))
    return {};
  std::string text = impl.decoder.decode(tokens_, at_start_);
  // What is stripped at a text's start is known only once some text is left.
  if (at_start_ && text.empty()) return {};
  at_start_ = false;
  tokens_.clear();
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = bytes_.empty() ? std::string() : repair_utf8(bytes_);
  if (!tokens_.empty()) text = tokenizer_->impl_->decoder.decode(tokens_, at_start_);
  bytes_.clear();
  tokens_.clear();
  at_start_ = true;
  return text;
}

}  // namespace temper
