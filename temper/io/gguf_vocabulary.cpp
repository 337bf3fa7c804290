#include "temper/io/gguf_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "temper/base/error.h"
#include "temper/io/gguf_splits.h"
#include "temper/io/gguf_token_types.h"
#include "temper/text/tokenizer/vocabulary.h"

namespace temper {
namespace {

constexpr const char* kOverride =
    "; model.tokenizer or --tokenizer names a directory with the model's tokenizer.json";
constexpr const char* kNamed[] = {"bos", "eos", "unknown", "padding"};
constexpr const char* kNamedInConfig[] = {"bos_token", "eos_token", "unk_token", "pad_token"};

std::string model_of(const GgufFile& file) {
  const auto* model = file.get<std::string>("tokenizer.ggml.model");
  return model ? *model : "";
}

struct Pair {
  std::string_view left, right;
  float score;
};

class TokenizerText {
 public:
  TokenizerText(const GgufFile& file, std::string where)
      : file_(file), where_(std::move(where)), model_(model_of(file)) {
    check<DataError>(model_ == "gpt2" || model_ == "llama" || model_ == "gemma4", where_,
                     ": `tokenizer.ggml.model`: found ", model_.empty() ? "none" : model_,
                     ", expected gpt2, llama or gemma4", kOverride);
    tokens_ = file_.list<std::string>("tokenizer.ggml.tokens");
    check<DataError>(tokens_ != nullptr, where_, ": `tokenizer.ggml.tokens`: is missing");
    check<DataError>(tokens_->size() <= static_cast<size_t>(Vocabulary::kMaxId), where_,
                     ": `tokenizer.ggml.tokens`: ", tokens_->size(), " tokens; at most ",
                     Vocabulary::kMaxId, " are supported");
    types_ = file_.list<int32_t>("tokenizer.ggml.token_type");
    check<DataError>(!types_ || types_->size() == tokens_->size(), where_,
                     ": `tokenizer.ggml.token_type`: ", types_ ? types_->size() : 0,
                     " entries for ", tokens_->size(), " tokens");
    read_tokens();
  }

  std::string text() {
    const bool bytes = model_ == "gpt2";
    GgufPretokenizer pre;
    if (bytes) {
      const auto* name = file_.get<std::string>("tokenizer.ggml.pre");
      pre = gguf_pretokenizer(name ? *name : "", where_);
    }
    const auto* prefix = file_.get<bool>("tokenizer.ggml.add_space_prefix");
    const bool space_first = prefix ? *prefix : model_ == "llama";
    Json rest = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    rest["added_tokens"] = added_;
    rest["normalizer"] = bytes ? Json() : marking(space_first);
    rest["pre_tokenizer"] = bytes ? std::move(pre.json) : Json();
    rest["post_processor"] = around(model_ == "llama" || pre.adds_bos);
    rest["decoder"] = bytes ? byte_decoder() : mark_decoder(space_first);
    Json model = {{"type", "BPE"},
                  {"dropout", nullptr},
                  {"unk_token", unknown_},
                  {"continuing_subword_prefix", nullptr},
                  {"end_of_word_suffix", nullptr},
                  {"fuse_unk", !bytes},
                  {"byte_fallback", !bytes},
                  {"ignore_merges", pre.ignore_merges}};
    // The vocabulary and the merges, nearly all of the text, are written without a document.
    std::string out = dump_json(rest);
    out.back() = ',';
    out += "\"model\":" + dump_json(model);
    out.back() = ',';
    out += "\"vocab\":{";
    write_vocabulary(out);
    out += "},\"merges\":[";
    model_ == "llama" ? write_scored_merges(out) : write_merges(out);
    return out += "]}}";
  }

 private:
  static bool is_run_of_spaces(const std::string& text) {
    return !text.empty() && text.find_first_not_of(' ') == text.npos;
  }
  GgufTokenType type_of(size_t id) const {
    return types_ ? static_cast<GgufTokenType>((*types_)[id]) : GgufTokenType::kNormal;
  }

  // A run of spaces is looked for after spaces became marks, by merges.
  void read_tokens() {
    for (size_t id = 0; id < tokens_->size(); ++id) {
      const std::string& text = (*tokens_)[id];
      const GgufTokenType type = type_of(id);
      const bool bytes = model_ == "gpt2";
      const bool run = !bytes && type == GgufTokenType::kUserDefined && is_run_of_spaces(text);
      const bool special = type == GgufTokenType::kControl || type == GgufTokenType::kUnknown;
      if (type == GgufTokenType::kUnknown) unknown_ = text;
      if (type == GgufTokenType::kUnused && text == str("[PAD", id, "]")) continue;
      if (special || (type == GgufTokenType::kUserDefined && !run)) {
        added_.push_back({{"id", id},
                          {"content", text},
                          {"single_word", false},
                          {"lstrip", false},
                          {"rstrip", false},
                          {"normalized", false},
                          {"special", special}});
      }
      std::string marked;
      if (run)
        for (size_t i = 0; i < text.size(); ++i) marked += kGgufSpaceMark;
      entries_.push_back({static_cast<int32_t>(id), run ? std::move(marked) : text,
                          run || type == GgufTokenType::kNormal});
    }
  }

  void write_vocabulary(std::string& out) const {
    for (const Entry& entry : entries_) {
      if (&entry != &entries_[0]) out += ',';
      out += quoted_text(entry.text) + ':' + std::to_string(entry.id);
    }
  }

  void write_pair(std::string_view left, std::string_view right, std::string& out) {
    if (out.back() != '[') out += ',';
    out += '[' + quoted_text(left) + ',' + quoted_text(right) + ']';
  }

  void write_merges(std::string& out) {
    const auto* merges = file_.list<std::string>("tokenizer.ggml.merges");
    check<DataError>(merges != nullptr, where_, ": `tokenizer.ggml.merges`: is missing");
    for (const std::string& merge : *merges) {
      const size_t space = merge.find(' ', 1);
      check<DataError>(space != merge.npos && space + 1 < merge.size(), where_,
                       ": `tokenizer.ggml.merges`: found ", quoted_text(merge),
                       ", expected two tokens with a space between them");
      write_pair(std::string_view(merge).substr(0, space),
                 std::string_view(merge).substr(space + 1), out);
    }
  }

  // Every way to cut a token into two, those of the highest score first, as transformers makes
  // them of SentencePiece's models.
  void write_scored_merges(std::string& out) {
    const auto* scores = file_.list<float>("tokenizer.ggml.scores");
    check<DataError>(scores && scores->size() == tokens_->size(), where_,
                     ": `tokenizer.ggml.scores`: expected ", tokens_->size(), " numbers");
    std::unordered_map<std::string_view, int32_t> ids;
    for (const Entry& entry : entries_) ids.emplace(entry.text, entry.id);
    std::vector<Pair> pairs;
    for (const Entry& entry : entries_) {
      const std::string_view text = entry.text;
      const float score = (*scores)[static_cast<size_t>(entry.id)];
      check<DataError>(score == score, where_, ": `tokenizer.ggml.scores`: entry ", entry.id,
                       " is no number");
      if (!entry.found || text.size() > kMostBytes) continue;
      for (size_t at = 1; at < text.size(); ++at)
        if (ids.contains(text.substr(0, at)) && ids.contains(text.substr(at)))
          pairs.push_back({text.substr(0, at), text.substr(at), score});
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
      return a.score != b.score ? a.score > b.score : a.left.size() > b.left.size();
    });
    for (const Pair& pair : pairs) write_pair(pair.left, pair.right, out);
  }

  static Json marking(bool space_first) {
    Json parts = Json::array();
    if (space_first) parts.push_back({{"type", "Prepend"}, {"prepend", kGgufSpaceMark}});
    parts.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kGgufSpaceMark}});
    return {{"type", "Sequence"}, {"normalizers", std::move(parts)}};
  }
  static Json byte_decoder() {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", true},
            {"trim_offsets", true},
            {"use_regex", true}};
  }
  static Json mark_decoder(bool space_first) {
    Json parts = {
        {{"type", "Replace"}, {"pattern", {{"String", kGgufSpaceMark}}}, {"content", " "}},
        {{"type", "ByteFallback"}},
        {{"type", "Fuse"}}};
    if (space_first)
      parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    return {{"type", "Sequence"}, {"decoders", std::move(parts)}};
  }

  // What stands before and behind a text.
  Json around(bool usual_bos) const {
    const auto* bos = file_.get<bool>("tokenizer.ggml.add_bos_token");
    const auto* eos = file_.get<bool>("tokenizer.ggml.add_eos_token");
    Json single = Json::array(), pair = Json::array(), special = Json::object();
    const auto add = [&](const char* name) {
      const auto id = gguf_token_id(file_, name);
      check<DataError>(id && static_cast<size_t>(*id) < tokens_->size(), where_,
                       ": `tokenizer.ggml.add_", name, "_token`: is true, and `tokenizer.ggml.",
                       name, "_token_id` names no token");
      const std::string& text = (*tokens_)[static_cast<size_t>(*id)];
      const Json part = {{"SpecialToken", {{"id", text}, {"type_id", 0}}}};
      single.push_back(part);
      pair.push_back(part);
      special[text] = {{"id", text}, {"ids", Json::array({*id})}, {"tokens", Json::array({text})}};
    };
    const bool before = bos ? *bos : usual_bos && gguf_token_id(file_, "bos");
    if (before) add("bos");
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    pair.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 0}}}});
    if (eos && *eos) add("eos");
    if (special.empty()) return {};
    return {{"type", "TemplateProcessing"},
            {"single", std::move(single)},
            {"pair", std::move(pair)},
            {"special_tokens", std::move(special)}};
  }

  static std::string quoted_text(std::string_view text) { return dump_json(Json(text)); }

  struct Entry {
    int32_t id;
    std::string text;
    bool found;  // by merges
  };
  static constexpr size_t kMostBytes = 256;  // of a token that merges make

  const GgufFile& file_;
  const std::string where_, model_;
  const std::vector<std::string>* tokens_ = nullptr;
  const std::vector<int32_t>* types_ = nullptr;
  Json added_ = Json::array(), unknown_;
  std::vector<Entry> entries_;
};

// The templates by name, the main one as "default".
std::vector<std::pair<std::string, std::string>> templates_of(const GgufFile& file) {
  const std::string key = "tokenizer.chat_template";
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, value] : file.keys) {
    const auto* text = std::get_if<std::string>(&value);
    if (!text) continue;
    if (name == key) out.emplace_back("default", *text);
    if (name.starts_with(key + ".")) out.emplace_back(name.substr(key.size() + 1), *text);
  }
  return out;
}

}  // namespace

bool has_gguf_tokenizer(const GgufFile& file) {
  const std::string model = model_of(file);
  return !model.empty() && model != "none" && model != "no_vocab";
}

std::string gguf_tokenizer_json(const GgufFile& file, const std::string& where) {
  return TokenizerText(file, where).text();
}

Json gguf_tokenizer_config(const GgufFile& file, const std::string& where) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  const auto* tokens = file.list<std::string>("tokenizer.ggml.tokens");
  for (size_t i = 0; i < std::size(kNamed); ++i) {
    const auto id = gguf_token_id(file, kNamed[i]);
    if (!id || !tokens) continue;
    check<DataError>(static_cast<size_t>(*id) < tokens->size(), where, ": `tokenizer.ggml.",
                     kNamed[i], "_token_id`: found ", *id, ", expected an id below ",
                     tokens->size());
    config[kNamedInConfig[i]] = (*tokens)[static_cast<size_t>(*id)];
  }
  const auto templates = templates_of(file);
  if (templates.size() < 2) return config;
  config["chat_template"] = Json::array();
  for (const auto& [name, text] : templates)
    config["chat_template"].push_back({{"name", name}, {"template", text}});
  return config;
}

std::optional<std::string> gguf_chat_template(const GgufFile& file) {
  const auto templates = templates_of(file);
  if (templates.size() != 1 || templates[0].first != "default") return {};
  return templates[0].second;
}

std::optional<int32_t> gguf_token_id(const GgufFile& file, const std::string& name) {
  const auto* id = file.get<uint32_t>("tokenizer.ggml." + name + "_token_id");
  return id && *id <= INT32_MAX ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
}

std::vector<int32_t> gguf_end_ids(const GgufFile& file) {
  std::vector<int32_t> ids;
  for (const char* name : kGgufEndTokens)
    if (const auto id = gguf_token_id(file, name);
        id && std::find(ids.begin(), ids.end(), *id) == ids.end())
      ids.push_back(*id);
  return ids;
}

}  // namespace temper
