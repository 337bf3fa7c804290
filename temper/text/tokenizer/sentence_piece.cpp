#include "temper/text/tokenizer/sentence_piece.h"

#include <sentencepiece_processor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <protozero/pbf_reader.hpp>

#include "temper/base/error.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper {
namespace {

// Numbers of sentencepiece_model.proto.
constexpr uint32_t kPieces = 1, kNormalizer = 3, kPieceText = 1, kPieceType = 3, kDummyPrefix = 3,
                   kRemoveExtraWhitespaces = 4;
constexpr int32_t kUnknownType = 2, kControlType = 3;

Json flags(std::string content, bool special) {
  return {
      {"id", 0},         {"content", std::move(content)}, {"single_word", false}, {"lstrip", false},
      {"rstrip", false}, {"normalized", false},           {"special", special}};
}

// tokenizer_config.json's added tokens in the order of their ids.
std::map<int32_t, Json> configured_tokens(const Json& config, const std::string& where) {
  std::map<int32_t, Json> out;
  const auto found = config.find("added_tokens_decoder");
  if (found == config.end()) return out;
  check<DataError>(found->is_object(), where, ": added_tokens_decoder: expected an object");
  for (const auto& [id, token] : found->items()) {
    const bool digits =
        !id.empty() && id.size() < 8 && id.find_first_not_of("0123456789") == id.npos;
    const bool valid =
        digits && token.is_object() && token.contains("content") && token["content"].is_string();
    check<DataError>(valid, where, ": added_tokens_decoder: found ", id, ": ",
                     dump_json(token).substr(0, 80), "; expected an id and {\"content\": text}");
    Json item = flags(token["content"], token.value("special", Json(false)) == true);
    for (const char* flag : {"single_word", "lstrip", "rstrip"})
      item[flag] = token.value(flag, Json(false)) == true;
    out[std::stoi(id)] = std::move(item);
  }
  return out;
}

// {"SpecialToken"} and {"Sequence"} items, as in a tokenizer.json's TemplateProcessing.
Json post_processor(const SentencePiece& model, const Json& config, const Json& special,
                    const Json& added) {
  Json items = Json::array(), ids = Json::object();
  const auto add = [&](const char* flag, bool absent, const char* name, int32_t own) {
    const auto wanted = config.find(flag);
    if (!(wanted != config.end() && wanted->is_boolean() ? wanted->get<bool>() : absent)) return;
    std::optional<int32_t> id;
    if (own >= 0) id = own;
    const std::string text = special.contains(name) ? special[name].get<std::string>() : "";
    for (size_t i = 0; i < model.pieces().size() && !text.empty(); ++i)
      if (model.pieces()[i].text == text) id = static_cast<int32_t>(i);
    for (const Json& token : added)
      if (token["content"] == text) id = token["id"].get<int32_t>();
    if (!id) return;
    items.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    ids[name] = {{"id", name}, {"ids", {*id}}, {"tokens", {text}}};
  };
  add("add_bos_token", true, "bos_token", model.begin());
  items.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add("add_eos_token", false, "eos_token", model.end());
  return {{"type", "TemplateProcessing"}, {"single", items}, {"special_tokens", ids}};
}

Json decoder(bool strips_space) {
  Json steps = {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (strips_space)
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

}  // namespace

struct SentencePiece::Impl {
  sentencepiece::SentencePieceProcessor with_space, without;
};

SentencePiece::SentencePiece(SentencePiece&&) noexcept = default;
SentencePiece::~SentencePiece() = default;

SentencePiece::SentencePiece(std::string model, const std::string& where)
    : impl_(std::make_unique<Impl>()), where_(where) {
  try {
    read_model(model);
  } catch (const protozero::exception&) {
    throw DataError(where + ": not a SentencePiece model: it ends within a field");
  }
  check<DataError>(!pieces_.empty() && pieces_.size() <= static_cast<size_t>(Vocabulary::kMaxId),
                   where, ": a SentencePiece model of ", pieces_.size(), " pieces; expected 1 to ",
                   Vocabulary::kMaxId);
  const auto load = [&](sentencepiece::SentencePieceProcessor& into) {
    const auto status = into.LoadFromSerializedProto(model);
    check<DataError>(status.ok(), where, ": not a SentencePiece model: ", status.ToString());
  };
  if (adds_space_) load(impl_->with_space);
  // A message that occurs twice is merged: this sets the normalizer's add_dummy_prefix to false.
  model += std::string_view("\x1a\x02\x18\x00", 4);
  load(impl_->without);
}

void SentencePiece::read_model(std::string_view model) {
  using protozero::tag_and_type;
  constexpr auto kBytes = protozero::pbf_wire_type::length_delimited;
  constexpr auto kVarint = protozero::pbf_wire_type::varint;
  for (protozero::pbf_reader fields(model.data(), model.size()); fields.next();) {
    if (fields.tag_and_type() == tag_and_type(kPieces, kBytes)) {
      Piece piece;
      for (auto parts = fields.get_message(); parts.next();) {
        if (parts.tag_and_type() == tag_and_type(kPieceText, kBytes)) {
          piece.text = parts.get_string();
        } else if (parts.tag_and_type() == tag_and_type(kPieceType, kVarint)) {
          const int32_t type = parts.get_enum();
          piece.control = type == kUnknownType || type == kControlType;
        } else {
          parts.skip();
        }
      }
      pieces_.push_back(std::move(piece));
    } else if (fields.tag_and_type() == tag_and_type(kNormalizer, kBytes)) {
      for (auto parts = fields.get_message(); parts.next();) {
        if (parts.tag_and_type() == tag_and_type(kDummyPrefix, kVarint))
          adds_space_ = parts.get_uint64() != 0;
        else if (parts.tag_and_type() == tag_and_type(kRemoveExtraWhitespaces, kVarint))
          strips_ = parts.get_uint64() != 0;
        else
          parts.skip();
      }
    } else {
      fields.skip();
    }
  }
}

int32_t SentencePiece::unknown() const { return impl_->without.unk_id(); }
int32_t SentencePiece::begin() const { return impl_->without.bos_id(); }
int32_t SentencePiece::end() const { return impl_->without.eos_id(); }

void SentencePiece::encode(std::string_view text, bool space, std::vector<int32_t>& out) const {
  std::vector<int> ids;
  const bool has_one = !strips_ && (text.starts_with(' ') || text.starts_with("▁"));
  const auto& processor = space && adds_space_ && !has_one ? impl_->with_space : impl_->without;
  const auto status = processor.Encode(text, &ids);
  check<DataError>(status.ok(), where_, ": ", status.ToString());
  out.insert(out.end(), ids.begin(), ids.end());
}

TokenizerFile tokenizer_file_of(const SentencePiece& model, const std::string& model_dir) {
  TokenizerFile file;
  file.has_vocabulary = file.has_merges = true;
  const auto& pieces = model.pieces();
  for (size_t i = 0; i < pieces.size(); ++i)
    file.vocabulary.add(pieces[i].text, static_cast<int32_t>(i));
  const Json config = read_model_file(model_dir, "tokenizer_config.json");
  const Json special = special_tokens(model_dir);
  const std::string where = model_dir + "/tokenizer_config.json";
  std::map<int32_t, Json> tokens = configured_tokens(config, where);
  if (tokens.empty()) {
    // Older directories: the model's own special pieces, and those that have names.
    for (const int32_t id : {model.unknown(), model.begin(), model.end()})
      if (id >= 0) tokens[id] = flags(pieces[static_cast<size_t>(id)].text, true);
    for (const auto& [name, text] : special.items())
      if (const auto id = file.vocabulary.find(text.get<std::string>()))
        tokens[*id] = flags(text, true);
  }
  Json added = Json::array();
  for (auto& [id, token] : tokens) {
    token["id"] = id;
    const auto known = file.vocabulary.find(token["content"].get<std::string>());
    const bool fits = known ? *known == id : id >= static_cast<int32_t>(pieces.size());
    check<DataError>(fits, where, ": added_tokens_decoder: ", dump_json(token["content"]),
                     " has id ", id, ", which is another piece's in tokenizer.model");
    // Ids behind the model's pieces are given in order, so a gap would move them.
    if (!known) file.vocabulary.add(token["content"].get<std::string>(), id);
    added.push_back(token);
  }
  file.rest = {{"model", {{"type", "BPE"}}},
               {"added_tokens", added},
               {"decoder", decoder(model.adds_space())},
               {"post_processor", post_processor(model, config, special, added)}};
  return file;
}

}  // namespace temper
