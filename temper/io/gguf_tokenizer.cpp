#include "temper/io/gguf_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/gguf_splits.h"
#include "temper/io/gguf_token_types.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/decoder.h"
#include "temper/text/tokenizer/special_tokens.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/text/tokenizer/tokenizer_file.h"

namespace temper {
namespace {

using Type = GgufTokenType;

struct Token {
  std::string text;
  Type type = Type::kUnused;
  float score = 0;
};

constexpr std::string_view kMarker = kGgufSpaceMark;

std::string with_spaces(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool marker = text.substr(at).starts_with(kMarker);
    out += marker ? ' ' : text[at];
    at += marker ? kMarker.size() : 1;
  }
  return out;
}

class Converter {
 public:
  Converter(const std::string& model_dir, const GgufVocabulary& vocabulary)
      : path_(model_dir + "/tokenizer.json"),
        asked_(vocabulary),
        tokenizer_(Tokenizer::load(path_)),
        file_(parse_tokenizer_file(read_file(path_, size_t{1} << 30), path_)),
        split_(gguf_split(file_.rest, path_)),
        special_(special_tokens(model_dir)),
        tokens_(static_cast<size_t>(vocabulary.size)) {}

  GgufTokenizer convert() {
    read_tokens();
    read_added_tokens();
    if (!split_.byte_level) {
      check_bytes();
      check<DataError>(has_scores() || !split_.space_first, path_,
                       ": puts a space before a text, which llama.cpp's `", asked_.character_model,
                       "` does not");
      if (has_scores()) score_merges();
    }
    make_unique();
    if (!split_.note.empty()) out_.notes.push_back(split_.note);
    write_tokens();
    write_special_tokens();
    return std::move(out_);
  }

 private:
  bool has_scores() const { return !split_.byte_level && asked_.character_model == "llama"; }
  bool inside(int32_t id) const { return id >= 0 && id < asked_.size; }
  void add(const std::string& key, GgufValue value) {
    out_.keys.emplace_back("tokenizer.ggml." + key, std::move(value));
  }

  void read_tokens() {
    const auto named_unknown = file_.rest["model"].find("unk_token");
    if (named_unknown != file_.rest["model"].end() && named_unknown->is_string())
      unknown_ = tokenizer_->id_of(named_unknown->get<std::string>());
    for (int32_t id = 0; id < asked_.size; ++id) {
      Token& token = tokens_[static_cast<size_t>(id)];
      token.text = tokenizer_->token_of(id);
      if (token.text.empty())
        token.text = str("[PAD", id, "]");
      else if (!split_.byte_level && byte_of_fallback_token(token.text) >= 0)
        token.type = Type::kByte;
      else
        token.type = Type::kNormal;
      if (unknown_ == id) token.type = Type::kUnknown;
    }
  }

  void read_added_tokens() {
    const auto added = file_.rest.find("added_tokens");
    if (added == file_.rest.end() || !added->is_array()) return;
    int strips = 0;
    for (const Json& item : *added) {
      const std::string content = item["content"].get<std::string>();
      const auto id = tokenizer_->id_of(content);
      if (!id || !inside(*id)) continue;
      added_.insert(*id);
      for (const char* name : {"lstrip", "rstrip", "single_word"})
        strips += item.value(name, Json(false)) == true;
      Token& token = tokens_[static_cast<size_t>(*id)];
      if (token.type == Type::kUnknown) continue;
      token.type = type_of_added(item, token.text);
      // llama.cpp looks for these in the text as it was written.
      if (token.type == Type::kUserDefined && !split_.byte_level)
        token.text = with_spaces(token.text);
    }
    if (strips > 0)
      out_.notes.push_back(
          str(strips, " flags of added tokens (lstrip, rstrip, single_word) are left out: ",
              "llama.cpp takes no spaces beside such tokens along"));
  }

  Type type_of_added(const Json& item, const std::string& text) const {
    if (item.value("special", Json(false)) == true) return Type::kControl;
    // Runs of markers that are looked for before spaces become markers: they are found by merges
    // alone, and print as spaces.
    const bool raw = item.value("normalized", Json(true)) == false;
    if (!split_.byte_level && raw && text.find(kMarker) != text.npos && file_.vocabulary.find(text))
      return Type::kNormal;
    return Type::kUserDefined;
  }

  void check_bytes() const {
    std::unordered_set<int> bytes;
    for (const Token& token : tokens_)
      if (token.type == Type::kByte) bytes.insert(byte_of_fallback_token(token.text));
    check<DataError>(bytes.size() == 256, path_, ": `byte_fallback` with ", bytes.size(),
                     " of 256 byte tokens (<0x00> to <0xFF>); llama.cpp needs all of them");
  }

  // llama.cpp joins the neighbours whose joined text is the token with the highest score. The
  // merges have the same result where every way to cut a token in two is a merge and the merges of
  // one token are adjacent, as in tokenizers that were made from SentencePiece's.
  void score_merges() {
    struct Range {
      size_t first, last, count;
    };
    std::unordered_map<int32_t, Range> ranges;
    const MergeList& merges = file_.merges;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const auto id = file_.vocabulary.find(merges[rank].whole);
      if (!id || !inside(*id)) continue;
      auto& range = ranges.emplace(*id, Range{rank, rank, 0}).first->second;
      range.last = rank;
      ++range.count;
    }
    const float lowest = -static_cast<float>(merges.size()) - 1;
    for (Token& token : tokens_) token.score = lowest;
    for (const auto& [id, range] : ranges)
      tokens_[static_cast<size_t>(id)].score = -static_cast<float>(range.first);
    size_t others = 0;
    for (int32_t id = 0; id < asked_.size; ++id) {
      if (tokens_[static_cast<size_t>(id)].type != Type::kNormal || added_.contains(id)) continue;
      const auto found = ranges.find(id);
      const size_t count = found == ranges.end() ? 0 : found->second.count;
      const bool together =
          count == 0 || found->second.last - found->second.first + 1 == found->second.count;
      others += !together || count != ways_to_cut(tokens_[static_cast<size_t>(id)].text);
    }
    if (others > 0)
      out_.notes.push_back(str(others, " of ", asked_.size,
                               " tokens have merges that scores cannot state: llama.cpp may cut "
                               "some words into other tokens"));
  }
  size_t ways_to_cut(std::string_view text) const {
    size_t ways = 0;
    for (size_t at = 1; at < text.size(); ++at)
      ways += file_.vocabulary.find(text.substr(0, at)) && file_.vocabulary.find(text.substr(at));
    return ways;
  }

  // llama.cpp ends the program where two tokens are spelled alike.
  void make_unique() {
    std::unordered_set<std::string> seen;
    for (Token& token : tokens_)
      while (!seen.insert(token.text).second) token.text += "_";
  }

  void write_tokens() {
    std::vector<std::string> texts;
    std::vector<float> scores;
    std::vector<int32_t> types;
    for (Token& token : tokens_) {
      texts.push_back(std::move(token.text));
      scores.push_back(token.score);
      types.push_back(static_cast<int32_t>(token.type));
    }
    add("model", split_.byte_level ? std::string("gpt2") : asked_.character_model);
    add("pre", split_.byte_level || has_scores() ? split_.pre : asked_.character_model);
    add("tokens", GgufArray(std::move(texts)));
    if (has_scores()) add("scores", GgufArray(std::move(scores)));
    add("token_type", GgufArray(std::move(types)));
    if (!split_.byte_level) add("add_space_prefix", split_.space_first);
    if (has_scores()) return;
    std::vector<std::string> merges;
    for (size_t rank = 0; rank < file_.merges.size(); ++rank)
      merges.push_back(str(file_.merges[rank].left, " ", file_.merges[rank].right));
    add("merges", GgufArray(std::move(merges)));
  }

  // The id of the special token of this name in the tokenizer's files, else `of_model`.
  std::optional<int32_t> named(const char* name, std::optional<int32_t> of_model) const {
    if (const auto text = special_.find(name); text != special_.end())
      if (const auto id = tokenizer_->id_of(text->get<std::string>()); id && inside(*id)) return id;
    return of_model;
  }
  void add_id(const char* key, std::optional<int32_t> id) {
    if (id && inside(*id)) add(key, static_cast<uint32_t>(*id));
  }

  void write_special_tokens() {
    const std::vector<int32_t> before = tokenizer_->tokens_before_text(),
                               after = tokenizer_->tokens_after_text();
    check<DataError>(before.size() <= 1 && after.size() <= 1, path_, ": `post_processor`: puts ",
                     before.size(), " tokens before a text and ", after.size(),
                     " behind it; a GGUF file can name one each");
    const auto first_end = asked_.eos.empty() ? std::nullopt : std::optional(asked_.eos[0]);
    const auto bos = before.empty() ? named("bos_token", asked_.bos) : before[0];
    const auto eos = after.empty() ? named("eos_token", first_end) : after[0];
    add_id("bos_token_id", bos);
    add_id("eos_token_id", eos);
    // Generation ends at any of the model's end tokens; the format has names for three.
    std::vector<int32_t> others;
    for (const int32_t id : asked_.eos)
      if (id != eos && std::find(others.begin(), others.end(), id) == others.end())
        others.push_back(id);
    if (!others.empty()) add_id("eot_token_id", others[0]);
    if (others.size() > 1) add_id("eom_token_id", others[1]);
    if (others.size() > 2)
      out_.notes.push_back(str("the model has ", others.size() + 1,
                               " end tokens; a GGUF file can name three of them"));
    add_id("unknown_token_id", named("unk_token", unknown_));
    add_id("padding_token_id", named("pad_token", asked_.pad));
    add("add_bos_token", !before.empty());
    add("add_eos_token", !after.empty());
  }

  const std::string path_;
  const GgufVocabulary& asked_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  const TokenizerFile file_;
  const GgufSplit split_;
  const Json special_;         // texts by name
  std::vector<Token> tokens_;  // by id
  std::unordered_set<int32_t> added_;
  std::optional<int32_t> unknown_;
  GgufTokenizer out_;
};

// Of a model without a tokenizer: which ids begin and end a text, and which one is padding.
GgufKeys keys_of_ids(const GgufVocabulary& vocabulary) {
  GgufKeys keys = {{"tokenizer.ggml.model", std::string("none")}};
  const auto add = [&](const char* name, std::optional<int32_t> id) {
    if (id && *id >= 0 && *id < vocabulary.size)
      keys.emplace_back(str("tokenizer.ggml.", name, "_token_id"), static_cast<uint32_t>(*id));
  };
  add("bos", vocabulary.bos);
  for (size_t i = 0; i < vocabulary.eos.size() && i < std::size(kGgufEndTokens); ++i)
    add(kGgufEndTokens[i], vocabulary.eos[i]);
  add("padding", vocabulary.pad);
  return keys;
}

void add_chat_template(const std::string& model_dir, const std::string& adapter, GgufKeys& keys) {
  ChatOptions options;
  options.adapter = adapter;
  const auto chat = ChatTemplate::find(model_dir, options);
  if (!chat) return;
  const std::string plain = chat->source(Json());
  const std::string tools = chat->source(Json::array({Json::object()}));
  keys.emplace_back("tokenizer.chat_template", plain);
  if (tools == plain) return;
  keys.emplace_back("tokenizer.chat_templates", GgufArray(std::vector<std::string>{"tool_use"}));
  keys.emplace_back("tokenizer.chat_template.tool_use", tools);
}

}  // namespace

GgufTokenizer gguf_tokenizer(const std::string& model_dir, const GgufVocabulary& vocabulary,
                             const std::string& adapter) {
  if (is_model_file(model_dir + "/tokenizer.json")) {
    check<DataError>(vocabulary.size <= Vocabulary::kMaxId, model_dir, ": `vocab_size` ",
                     vocabulary.size, "; at most ", Vocabulary::kMaxId, " is supported");
    GgufTokenizer out = Converter(model_dir, vocabulary).convert();
    add_chat_template(model_dir, adapter, out.keys);
    return out;
  }
  check<DataError>(!is_model_file(model_dir + "/tokenizer.model"), model_dir,
                   ": has a tokenizer.model and no tokenizer.json, of which GGUF's tokenizer is "
                   "made; transformers writes one (AutoTokenizer.from_pretrained(DIR)"
                   ".save_pretrained(DIR))");
  return {.keys = keys_of_ids(vocabulary)};
}

}  // namespace temper
