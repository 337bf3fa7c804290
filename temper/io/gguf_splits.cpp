#include "temper/io/gguf_splits.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "temper/base/error.h"

namespace temper {
namespace {

const std::string kSpaceMark = "▁";

// Patterns as tokenizer.json files have them.
constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                               R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepSeekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// These leave characters that they do not find.
constexpr const char* kDeepSeekDigits = R"(\p{N}{1,3})";
constexpr const char* kDeepSeekCjk = "[一-龥぀-ゟ゠-ヿ]+";
constexpr const char* kDigits = "each digit";

constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|)"
    R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Pre-tokenizers that llama.cpp knows by name: the cuts that are made one after the other, whether
// a word that is a token is that token whatever its merges, and whether a text begins with BOS
// where a file does not say so.
struct Known {
  std::vector<std::string> names;  // the first is written
  std::vector<std::string> cuts;
  bool ignore_merges = false, adds_bos = false;
};
const std::vector<Known>& known() {
  static const std::vector<Known> all = {
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "a.x-4.0", "mellum", "exaone4",
        "trillion", "granite-docling"},
       {kGpt2}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan"}, {kQwen2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "midm-2.0", "lfm2"},
       {kLlama3},
       true,
       true},
      {{"smaug-bpe", "dbrx", "chatglm-bpe", "glm4"}, {kLlama3}},
      {{"qwen35"}, {kQwen35}},
      {{"gpt-4o", "llama4"}, {kGpt4o}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       {kDigits, kGpt2}},
      {{"deepseek-v3", "hunyuan-dense"}, {kDeepSeekDigits, kDeepSeekCjk, kDeepSeekWords}},
      {{"tekken"}, {kTekken}, true, true},
      {{"seed-coder"}, {kSeedCoder}}};
  return all;
}

// With line ends written as escapes, as most files have them.
std::string escaped(const std::string& pattern) {
  std::string out;
  for (const char c : pattern) out += c == '\r' ? "\\r" : c == '\n' ? "\\n" : std::string(1, c);
  return out;
}

std::string text(const Json& part, const char* key, const std::string& absent = "") {
  const auto found = part.find(key);
  return found == part.end() || !found->is_string() ? absent : found->get<std::string>();
}
bool flag(const Json& part, const char* key, bool absent) {
  const auto found = part.find(key);
  return found == part.end() || !found->is_boolean() ? absent : found->get<bool>();
}

std::string type_of(const Json& part) { return part.is_object() ? text(part, "type") : ""; }

// A component and, where it is a sequence, its parts; empty where it is absent or null.
std::vector<Json> parts_of(const Json& rest, const char* key, const char* list) {
  const auto found = rest.find(key);
  if (found == rest.end() || found->is_null()) return {};
  if (type_of(*found) != "Sequence" || !found->contains(list)) return {*found};
  return std::vector<Json>((*found)[list].begin(), (*found)[list].end());
}

std::string shown(const Json& part) {
  const std::string text = dump_json(part);
  return text.size() <= 200 ? text : text.substr(0, 200) + "...";
}

class Splits {
 public:
  Splits(const Json& rest, const std::string& where)
      : rest_(rest),
        where_(where),
        normalizers_(parts_of(rest, "normalizer", "normalizers")),
        pre_tokenizers_(parts_of(rest, "pre_tokenizer", "pretokenizers")) {}

  GgufSplit find() const {
    for (const Json& part : pre_tokenizers_)
      if (type_of(part) == "ByteLevel") return byte_level();
    const auto model = rest_.find("model");
    check<DataError>(model != rest_.end() && flag(*model, "byte_fallback", false), where_,
                     ": neither a byte-level tokenizer nor one with byte fallback, and llama.cpp "
                     "knows no others of this kind",
                     kHint);
    return sentence_piece();
  }

 private:
  static constexpr const char* kHint =
      "; export with --format hf, or without tokenizer files: rows of ids need none";
  [[noreturn]] void refuse(const char* key, const Json& part, const char* why) const {
    throw DataError(str(where_, ": `", key, "`: ", why, ": ", shown(part), kHint));
  }

  GgufSplit byte_level() const {
    // llama.cpp does not compose characters (NFC): texts that are composed already, nearly all, are
    // not changed by it.
    for (const Json& part : normalizers_)
      if (type_of(part) != "NFC") refuse("normalizer", part, "llama.cpp has none of this kind");
    std::vector<std::string> cuts;
    for (const Json& part : pre_tokenizers_) add_cuts(part, cuts);
    const bool ignore_merges = flag(rest_["model"], "ignore_merges", false);
    for (const Known& one : known())
      if (one.cuts == cuts && one.ignore_merges == ignore_merges)
        return {.byte_level = true, .pre = one.names[0]};
    refuse("pre_tokenizer", rest_["pre_tokenizer"],
           ignore_merges ? "with `ignore_merges` true, llama.cpp knows none that cuts texts so"
                         : "llama.cpp knows none that cuts texts so");
  }

  void add_cuts(const Json& part, std::vector<std::string>& cuts) const {
    const std::string type = type_of(part);
    if (type == "ByteLevel") {
      if (flag(part, "add_prefix_space", true))
        refuse("pre_tokenizer", part, "llama.cpp puts no space before a text here");
      if (flag(part, "use_regex", true)) cuts.push_back(kGpt2);
    } else if (type == "Digits" && flag(part, "individual_digits", false)) {
      cuts.push_back(kDigits);
    } else if (type == "Split" && part.contains("pattern") && part["pattern"].is_object() &&
               part["pattern"].contains("Regex") && part["pattern"]["Regex"].is_string()) {
      // Words that the pattern finds, or what is left when all else is removed: where the pattern
      // finds every character these are the same.
      const std::string behavior = text(part, "behavior");
      const bool inverted = flag(part, "invert", false);
      const std::string pattern = escaped(part["pattern"]["Regex"].get<std::string>());
      const bool finds_all = pattern != kDeepSeekDigits && pattern != kDeepSeekCjk;
      if (!(behavior == "Isolated" && !inverted) &&
          !(behavior == "Removed" && inverted && finds_all))
        refuse("pre_tokenizer", part, "llama.cpp has no such behavior");
      cuts.push_back(pattern);
    } else {
      refuse("pre_tokenizer", part, "llama.cpp has none of this kind");
    }
  }

  // A space becomes a marker, in a normalizer or a pre-tokenizer, and nothing is cut.
  GgufSplit sentence_piece() const {
    GgufSplit split{.pre = "default"};
    bool marks = false;
    for (const Json& part : normalizers_) {
      const std::string type = type_of(part);
      if (type == "Prepend" && text(part, "prepend") == kSpaceMark)
        split.space_first = true;
      else if (type == "Replace" && text(part, "content") == kSpaceMark && is_space(part))
        marks = true;
      else
        refuse("normalizer", part, "llama.cpp has none of this kind");
    }
    for (const Json& part : pre_tokenizers_) {
      const std::string type = type_of(part);
      // Gemma's: it looks for spaces where none are left.
      if (type == "Split" && marks && is_space(part)) continue;
      if (type != "Metaspace" || text(part, "replacement", kSpaceMark) != kSpaceMark)
        refuse("pre_tokenizer", part, "llama.cpp has none of this kind");
      if (flag(part, "split", true))
        refuse("pre_tokenizer", part, "llama.cpp merges across words, and has no `split`");
      const std::string scheme =
          text(part, "prepend_scheme", flag(part, "add_prefix_space", true) ? "always" : "never");
      split.space_first = scheme != "never";
      if (split.space_first)
        split.note = str("llama.cpp also puts a space before a text that begins with one",
                         scheme == "first" ? ", and behind every special token" : "");
      marks = true;
    }
    check<DataError>(marks, where_,
                     ": a tokenizer with byte fallback that does not write spaces as ", kSpaceMark,
                     ", which is how llama.cpp reads them", kHint);
    return split;
  }
  static bool is_space(const Json& part) {
    return part.contains("pattern") && part["pattern"] == Json({{"String", " "}});
  }

  const Json& rest_;
  const std::string& where_;
  std::vector<Json> normalizers_, pre_tokenizers_;
};

Json pretokenizer_of(const std::vector<std::string>& cuts) {
  Json parts = Json::array();
  for (const std::string& cut : cuts)
    parts.push_back(cut == kDigits ? Json({{"type", "Digits"}, {"individual_digits", true}})
                                   : Json({{"type", "Split"},
                                           {"pattern", {{"Regex", cut}}},
                                           {"behavior", "Isolated"},
                                           {"invert", false}}));
  parts.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}};
}

}  // namespace

GgufPretokenizer gguf_pretokenizer(const std::string& pre, const std::string& where) {
  std::string names;
  for (const Known& one : known())
    for (const std::string& name : one.names) {
      if (name == pre) return {pretokenizer_of(one.cuts), one.ignore_merges, one.adds_bos};
      names += (names.empty() ? "" : ", ") + name;
    }
  throw DataError(str(where, ": `tokenizer.ggml.pre`: found ",
                      pre.empty() ? "none" : "`" + pre + "`", ", expected one of ", names,
                      "; model.tokenizer or --tokenizer names a directory with the model's "
                      "tokenizer.json"));
}

GgufSplit gguf_split(const Json& rest, const std::string& where) {
  return Splits(rest, where).find();
}

}  // namespace temper
