// Tokenizers as GGUF keys. That llama.cpp makes the same ids of them is shown by
// tools/check_gguf.py.
#include "temper/io/gguf_tokenizer.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "tests/golden.h"

using namespace temper;

namespace {

std::string golden(const std::string& name) { return golden_path("tokenizers/" + name + ".json"); }

// A model directory with a golden's tokenizer.
struct Directory {
  std::string path =
      str(std::filesystem::temp_directory_path().string(), "/gguf_tokenizer_test-", ::getpid());
  Json tokenizer;

  explicit Directory(const std::string& name)
      : tokenizer(read_json_file(golden(name))["tokenizer"]) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    write();
  }
  ~Directory() { std::filesystem::remove_all(path); }
  void write() const { add("tokenizer.json", tokenizer.dump()); }
  void add(const std::string& file, const std::string& text) const {
    write_file_atomic(path + "/" + file, text);
  }
  std::string problem() const {
    write();
    try {
      gguf_tokenizer(path, {.size = 1000});
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }
};

const GgufValue* find(const GgufTokenizer& made, const std::string& key) {
  for (const auto& [name, value] : made.keys)
    if (name == "tokenizer." + key) return &value;
  return nullptr;
}
template <class T>
T get(const GgufTokenizer& made, const std::string& key) {
  const GgufValue* value = find(made, key);
  REQUIRE_MESSAGE(value, key);
  return std::get<T>(*value);
}
template <class T>
std::vector<T> list(const GgufTokenizer& made, const std::string& key) {
  return std::get<std::vector<T>>(get<GgufArray>(made, key));
}

struct Tokens {
  explicit Tokens(const GgufTokenizer& made)
      : texts(list<std::string>(made, "ggml.tokens")),
        types(list<int32_t>(made, "ggml.token_type")) {}
  int32_t type_of(const std::string& text) const {
    const auto found = std::find(texts.begin(), texts.end(), text);
    return found == texts.end() ? 0 : types[static_cast<size_t>(found - texts.begin())];
  }
  std::vector<std::string> texts;
  std::vector<int32_t> types;
};

// What llama.cpp does with a "llama" vocabulary: joins the neighbours whose whole is a token of the
// highest score, the leftmost first; what is no token becomes its bytes.
std::vector<int32_t> joined_by_score(const GgufTokenizer& made, const std::string& marked) {
  const Tokens tokens(made);
  const std::vector<float> scores = list<float>(made, "ggml.scores");
  std::unordered_map<std::string, int32_t> ids;
  for (size_t i = 0; i < tokens.texts.size(); ++i) ids[tokens.texts[i]] = static_cast<int32_t>(i);
  std::vector<std::string> parts;
  for (const char c : marked) {
    if ((c & 0xC0) != 0x80) parts.emplace_back();
    parts.back() += c;
  }
  for (;;) {
    size_t best = 0;
    float score = -1e30f;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto whole = ids.find(parts[i] + parts[i + 1]);
      if (whole == ids.end() || scores[static_cast<size_t>(whole->second)] <= score) continue;
      best = i;
      score = scores[static_cast<size_t>(whole->second)];
    }
    if (score == -1e30f) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<int32_t> out;
  for (const std::string& part : parts) {
    if (ids.contains(part)) {
      out.push_back(ids[part]);
      continue;
    }
    for (const char c : part) {
      char byte[8];
      std::snprintf(byte, sizeof byte, "<0x%02X>", static_cast<unsigned char>(c));
      out.push_back(ids.at(byte));
    }
  }
  return out;
}

}  // namespace

TEST_CASE("byte-level tokenizers become `gpt2` with the pre-tokenizer of their pattern") {
  const std::pair<const char*, const char*> kinds[] = {
      {"qwen2", "qwen2"}, {"llama3", "llama-bpe"}, {"gpt2", "gpt-2"}};
  for (const auto& [name, pre] : kinds) {
    CAPTURE(name);
    Directory directory(name);
    if (directory.tokenizer["pre_tokenizer"].contains("add_prefix_space"))
      directory.tokenizer["pre_tokenizer"]["add_prefix_space"] = false;
    directory.write();
    const auto tokenizer = Tokenizer::load_directory(directory.path);
    const int64_t size = tokenizer->vocab_size() + 3;
    const GgufTokenizer made = gguf_tokenizer(directory.path, {.size = size});
    CHECK(get<std::string>(made, "ggml.model") == "gpt2");
    CHECK(get<std::string>(made, "ggml.pre") == pre);
    const Tokens tokens(made);
    REQUIRE(tokens.texts.size() == static_cast<size_t>(size));
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      const std::string text = tokenizer->token_of(id);
      if (text.empty()) continue;
      CHECK(tokens.texts[static_cast<size_t>(id)] == text);
      if (tokenizer->is_special(id)) CHECK(tokens.types[static_cast<size_t>(id)] == 3);
    }
    CHECK(tokens.texts.back() == str("[PAD", size - 1, "]"));
    CHECK(tokens.types.back() == 5);
    const Json& merges = directory.tokenizer["model"]["merges"];
    const std::vector<std::string> written = list<std::string>(made, "ggml.merges");
    REQUIRE(written.size() == merges.size());
    const Json& first = merges[0];
    CHECK(written[0] == (first.is_string()
                             ? first.get<std::string>()
                             : first[0].get<std::string>() + " " + first[1].get<std::string>()));
  }
}

TEST_CASE("added tokens are found in text as llama.cpp's kinds of tokens say") {
  const Directory directory("qwen2");
  const GgufTokenizer made = gguf_tokenizer(directory.path, {.size = 800});
  const Tokens tokens(made);
  CHECK(tokens.type_of("<|end|>") == 3);
  CHECK(tokens.type_of("[A]") == 4);
  CHECK(tokens.type_of("Ġthe") == 1);
  REQUIRE(made.notes.size() == 1);
  CHECK(made.notes[0].find("lstrip, rstrip, single_word") != std::string::npos);
}

TEST_CASE("special tokens: the tokenizer's own, then the model's, and all ends of generation") {
  Directory directory("llama3");
  GgufTokenizer made =
      gguf_tokenizer(directory.path, {.size = 800, .bos = 1, .pad = 9, .eos = {4, 5, 6, 7}});
  CHECK(get<uint32_t>(made, "ggml.bos_token_id") == 700);  // what is put before a text
  CHECK(get<uint32_t>(made, "ggml.eos_token_id") == 4);
  CHECK(get<uint32_t>(made, "ggml.eot_token_id") == 5);
  CHECK(get<uint32_t>(made, "ggml.eom_token_id") == 6);
  CHECK(get<uint32_t>(made, "ggml.padding_token_id") == 9);
  CHECK(get<bool>(made, "ggml.add_bos_token"));
  CHECK(!get<bool>(made, "ggml.add_eos_token"));
  CHECK(made.notes ==
        std::vector<std::string>{"the model has 4 end tokens; a GGUF file can name three of them"});
  CHECK(find(made, "chat_template") == nullptr);

  directory.add("tokenizer_config.json",
                R"({"eos_token": "<|end|>", "chat_template": "{{ messages[0].content }}"})");
  directory.tokenizer.erase("post_processor");
  directory.write();
  made = gguf_tokenizer(directory.path, {.size = 800, .bos = 1, .eos = {4}});
  const auto end = Tokenizer::load_directory(directory.path)->id_of("<|end|>");
  CHECK(get<uint32_t>(made, "ggml.eos_token_id") == static_cast<uint32_t>(*end));
  CHECK(get<uint32_t>(made, "ggml.eot_token_id") == 4);
  CHECK(get<uint32_t>(made, "ggml.bos_token_id") == 1);
  CHECK(!get<bool>(made, "ggml.add_bos_token"));
  CHECK(get<std::string>(made, "chat_template") == "{{ messages[0].content }}");
  const std::string adapter = directory.path + "/adapter";
  std::filesystem::create_directories(adapter);
  write_file_atomic(adapter + "/chat_template.jinja", "the adapter's");
  made = gguf_tokenizer(directory.path, {.size = 800, .bos = 1, .eos = {4}}, adapter);
  CHECK(get<std::string>(made, "chat_template") == "the adapter's");
}

TEST_CASE("a tokenizer with byte fallback becomes `llama`, and joining by score gives its ids") {
  Directory directory("llama2_legacy");
  Json texts = read_json_file(golden("texts"));
  // Added tokens are cut out before.
  directory.tokenizer["added_tokens"].erase(3);
  directory.tokenizer["added_tokens"].erase(3);
  directory.write();
  const auto tokenizer = Tokenizer::load_directory(directory.path);
  const GgufTokenizer made = gguf_tokenizer(directory.path, {.size = tokenizer->vocab_size()});
  CHECK(get<std::string>(made, "ggml.model") == "llama");
  CHECK(get<std::string>(made, "ggml.pre") == "default");
  CHECK(get<bool>(made, "ggml.add_space_prefix"));
  CHECK(get<bool>(made, "ggml.add_bos_token"));
  CHECK(get<uint32_t>(made, "ggml.unknown_token_id") == 0);
  const Tokens tokens(made);
  CHECK(tokens.type_of("<unk>") == 2);
  CHECK(tokens.type_of("<s>") == 3);
  CHECK(tokens.type_of("<0x0A>") == 6);
  CHECK(tokens.type_of("▁the") == 1);
  size_t compared = 0;
  for (const Json& item : texts) {
    const std::string text = item.get<std::string>();
    if (text.empty() || text.find('<') != text.npos) continue;
    std::string marked = "▁";
    for (const char c : text) marked += c == ' ' ? std::string("▁") : std::string(1, c);
    CAPTURE(text);
    CHECK(joined_by_score(made, marked) == tokenizer->encode(text));
    ++compared;
  }
  CHECK(compared > 30);
}

TEST_CASE("a space before a text that llama.cpp puts elsewhere too is noted") {
  Directory directory("llama2_legacy");
  directory.tokenizer["normalizer"] = nullptr;
  const auto note_of = [&](const Json& scheme) {
    directory.tokenizer["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}};
    directory.write();
    const GgufTokenizer made = gguf_tokenizer(directory.path, {.size = 910});
    CHECK(get<bool>(made, "ggml.add_space_prefix") == (scheme != "never"));
    std::string note;
    for (const std::string& one : made.notes)
      if (one.find("space before a text") != one.npos) note = one;
    return note;
  };
  CHECK(note_of("never") == "");
  CHECK(note_of("always") == "llama.cpp also puts a space before a text that begins with one");
  CHECK(note_of("first").ends_with("begins with one, and behind every special token"));
}

TEST_CASE("Gemma's runs of spaces and lines, and no space before a text") {
  const Directory directory("gemma");
  const GgufTokenizer made = gguf_tokenizer(directory.path, {.size = 1200});
  CHECK(!get<bool>(made, "ggml.add_space_prefix"));
  const Tokens tokens(made);
  CHECK(tokens.type_of("\n\n\n") == 4);
  CHECK(tokens.type_of("▁▁") == 1);  // its merges find it, where spaces have become markers
  REQUIRE(made.notes.size() == 1);   // this one was not made from SentencePiece's
  CHECK(made.notes[0].find("merges that scores cannot state") != std::string::npos);
}

TEST_CASE("Gemma 4's tokenizer has the merges themselves") {
  Directory directory("gemma");
  const GgufVocabulary asked{.size = 1200, .character_model = "gemma4"};
  const GgufTokenizer made = gguf_tokenizer(directory.path, asked);
  CHECK(get<std::string>(made, "ggml.model") == "gemma4");
  CHECK(get<std::string>(made, "ggml.pre") == "gemma4");
  CHECK(!find(made, "ggml.scores"));
  CHECK(made.notes.empty());
  const Json& merges = directory.tokenizer["model"]["merges"];
  const std::vector<std::string> written = list<std::string>(made, "ggml.merges");
  REQUIRE(written.size() == merges.size());
  const Json& last = merges.back();
  CHECK(written.back() == (last.is_array()
                               ? str(last[0].get<std::string>(), " ", last[1].get<std::string>())
                               : last.get<std::string>()));
  CHECK(Tokens(made).type_of("<0x0A>") == 6);
  directory.tokenizer["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "▁"}}, directory.tokenizer["normalizer"]}}};
  directory.write();
  CHECK_THROWS_WITH_AS(gguf_tokenizer(directory.path, asked),
                       doctest::Contains("puts a space before a text, which llama.cpp's `gemma4`"),
                       DataError);
}

TEST_CASE("DeepSeek-V3's three cuts, with line ends as they are or as escapes") {
  const auto cut = [](const std::string& pattern, const char* behavior, bool invert) {
    return Json{{"type", "Split"},
                {"pattern", {{"Regex", pattern}}},
                {"behavior", behavior},
                {"invert", invert}};
  };
  Directory directory("qwen2");
  directory.tokenizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  const auto write = [&](const std::string& end, const char* behavior, bool invert) {
    const std::string words = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)" + end +
                              R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)" + end +
                              R"(]*|\s*[)" + end + R"(]+|\s+(?!\S)|\s+)";
    directory.tokenizer["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {cut(R"(\p{N}{1,3})", behavior, invert),
          cut("[一-龥぀-ゟ゠-ヿ]+", "Isolated", false),
          cut(words, "Isolated", false),
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    directory.write();
  };
  for (const char* end : {"\r\n", R"(\r\n)"}) {
    write(end, "Isolated", false);
    CHECK(get<std::string>(gguf_tokenizer(directory.path, {.size = 1000}), "ggml.pre") ==
          "deepseek-v3");
  }
  write("\r\n", "Removed", true);  // text that is no number is removed
  CHECK(directory.problem().find("llama.cpp has no such behavior") != std::string::npos);
}

TEST_CASE("what llama.cpp has no form for is refused by name") {
  const auto problem = [](const std::string& name, const auto& change) {
    Directory directory(name);
    change(directory.tokenizer);
    return directory.problem();
  };
  const auto says = [](const std::string& found, const std::string& part) {
    CAPTURE(found);
    return found.find("tokenizer.json: " + part) != std::string::npos;
  };
  CHECK(problem("qwen2", [](Json&) {}) == "no error");
  CHECK(says(problem("qwen2",
                     [](Json& t) {
                       t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+|\\W+";
                     }),
             "`pre_tokenizer`: llama.cpp knows none that cuts texts so"));
  CHECK(says(problem("qwen2", [](Json& t) { t["model"]["ignore_merges"] = true; }),
             "`pre_tokenizer`: with `ignore_merges` true"));
  CHECK(says(problem("qwen2", [](Json& t) { t["normalizer"] = {{"type", "Lowercase"}}; }),
             "`normalizer`: llama.cpp has none of this kind: {\"type\":\"Lowercase\"}"));
  CHECK(says(problem("gpt2", [](Json&) {}), "`pre_tokenizer`: llama.cpp puts no space before"));
  CHECK(says(problem("gemma", [](Json& t) { t["model"]["byte_fallback"] = false; }),
             "neither a byte-level tokenizer nor one with byte fallback"));
  CHECK(says(problem("gemma", [](Json& t) { t["model"]["vocab"].erase("<0x0A>"); }),
             "`byte_fallback` with 255 of 256 byte tokens"));
  CHECK(says(problem("gemma",
                     [](Json& t) {
                       t["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
                       t["normalizer"] = nullptr;
                     }),
             "`pre_tokenizer`: llama.cpp merges across words"));
  // llama3's pattern with merges that count has a name of its own.
  Directory directory("llama3");
  directory.tokenizer["model"]["ignore_merges"] = false;
  directory.write();
  CHECK(get<std::string>(gguf_tokenizer(directory.path, {.size = 800}), "ggml.pre") == "smaug-bpe");
}

TEST_CASE("tokens behind the model's rows are left out, and none are spelled alike") {
  Directory directory("llama3");
  directory.tokenizer["model"]["vocab"]["[PAD720]"] = 710;
  directory.write();
  Tokens tokens(gguf_tokenizer(directory.path, {.size = 725}));
  CHECK(tokens.texts[710] == "[PAD720]");
  CHECK(tokens.texts[720] == "[PAD720]_");
  CHECK(Tokens(gguf_tokenizer(directory.path, {.size = 100})).texts.size() == 100);
}

TEST_CASE("a vocabulary that no model has takes no memory") {
  const Directory directory("qwen2");
  CHECK_THROWS_WITH_AS(gguf_tokenizer(directory.path, {.size = INT32_MAX}),
                       doctest::Contains("`vocab_size` 2147483647; at most"), DataError);
}

TEST_CASE("a directory without a tokenizer, and one with SentencePiece's alone") {
  const Directory directory("qwen2");
  std::filesystem::remove(directory.path + "/tokenizer.json");
  CHECK(gguf_tokenizer(directory.path, {.size = 5}).keys ==
        GgufKeys{{"tokenizer.ggml.model", std::string("none")}});
  directory.add("tokenizer.model", "x");
  CHECK_THROWS_WITH_AS(gguf_tokenizer(directory.path, {.size = 5}),
                       doctest::Contains("has a tokenizer.model and no tokenizer.json"), DataError);
}
