// Tokenizers that are read from GGUF keys give the ids of those that the keys were made of.
#include "temper/io/gguf_vocabulary.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/gguf_token_types.h"
#include "temper/io/gguf_tokenizer.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "tests/golden.h"
#include "tests/text/golden.h"

using namespace temper;

namespace {

struct TokenizerFolder {
  std::string path =
      str(std::filesystem::temp_directory_path().string(), "/gguf_vocabulary_test-", ::getpid());
  Json tokenizer;
  explicit TokenizerFolder(const std::string& name)
      : tokenizer(golden_tokenizer_file(name)["tokenizer"]) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    // What GGUF does not hold.
    tokenizer["normalizer"] =
        tokenizer["normalizer"].is_object() && tokenizer["normalizer"].value("type", "") == "NFC"
            ? Json()
            : tokenizer["normalizer"];
    if (tokenizer["pre_tokenizer"].is_object() &&
        tokenizer["pre_tokenizer"].contains("add_prefix_space"))
      tokenizer["pre_tokenizer"]["add_prefix_space"] = false;
    Json added = Json::array();
    for (Json& token : tokenizer["added_tokens"]) {
      for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized"})
        token[flag] = false;
      // Runs of marks, which are found as they are written, too.
      if (!token["content"].get<std::string>().starts_with("▁")) added.push_back(token);
    }
    tokenizer["added_tokens"] = std::move(added);
  }
  ~TokenizerFolder() { std::filesystem::remove_all(path); }

  GgufFile file(const std::string& character_model = "llama") const {
    write_file_atomic(path + "/tokenizer.json", tokenizer.dump());
    const auto own = Tokenizer::load_directory(path);
    GgufFile out;
    out.keys = gguf_tokenizer(path, {.size = own->vocab_size() + 3,
                                     .bos = 1,
                                     .eos = {2, 5},
                                     .character_model = character_model})
                   .keys;
    return out;
  }
};

void same_ids(const TokenizerFolder& folder, const GgufFile& file) {
  const auto own = Tokenizer::load_directory(folder.path);
  const auto made = Tokenizer::parse(gguf_tokenizer_json(file, "m.gguf"), "m.gguf");
  for (const Json& text : read_json_file(golden_path("tokenizers/texts.json"))) {
    CAPTURE(text.dump());
    const auto ids = own->encode(text.get<std::string>());
    CHECK(made->encode(text.get<std::string>()) == ids);
    CHECK(made->encode(text.get<std::string>(), true) ==
          own->encode(text.get<std::string>(), true));
    CHECK(made->decode(ids) == own->decode(ids));
    CHECK(made->decode(ids, true) == own->decode(ids, true));
  }
  CHECK(made->vocab_size() == own->vocab_size());
}

std::string problem_of_keys(const GgufFile& file) {
  try {
    Tokenizer::parse(gguf_tokenizer_json(file, "m.gguf"), "m.gguf");
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

void set(GgufFile& file, const std::string& key, GgufValue value) {
  for (auto& [name, old] : file.keys)
    if (name == "tokenizer.ggml." + key) {
      old = std::move(value);
      return;
    }
  file.keys.emplace_back("tokenizer.ggml." + key, std::move(value));
}

}  // namespace

TEST_CASE("byte-level tokenizers come back from GGUF keys with the same ids") {
  for (const char* name : {"qwen2", "llama3", "gpt2"}) {
    CAPTURE(name);
    const TokenizerFolder folder(name);
    const GgufFile file = folder.file();
    same_ids(folder, file);
    CHECK(gguf_end_ids(file) == std::vector<int32_t>{2, 5});
  }
}

TEST_CASE("control tokens before others keep their ids") {
  const TokenizerFolder folder("qwen2");
  GgufFile file = folder.file();
  auto tokens = *file.list<std::string>("tokenizer.ggml.tokens");
  auto types = *file.list<int32_t>("tokenizer.ggml.token_type");
  const auto control =
      std::find(types.begin(), types.end(), static_cast<int32_t>(GgufTokenType::kControl));
  REQUIRE(control > types.begin());
  REQUIRE(control < types.end());
  std::swap(tokens[0], tokens[static_cast<size_t>(control - types.begin())]);
  std::iter_swap(types.begin(), control);
  const std::string text = tokens[0];
  set(file, "tokens", std::move(tokens));
  set(file, "token_type", std::move(types));
  const auto made = Tokenizer::parse(gguf_tokenizer_json(file, "m.gguf"), "m.gguf");
  CHECK(made->id_of(text) == 0);
  CHECK(made->encode(text) == std::vector<int32_t>{0});
}

TEST_CASE("tokenizers of characters come back from scores, or from merges") {
  for (const char* name : {"gemma", "llama2_legacy"}) {
    CAPTURE(name);
    const TokenizerFolder folder(name);
    same_ids(folder, folder.file());
  }
  const TokenizerFolder folder("gemma");
  same_ids(folder, folder.file("gemma4"));
}

TEST_CASE("special tokens and templates stand in tokenizer_config.json") {
  const TokenizerFolder folder("gemma");
  GgufFile file = folder.file();
  CHECK(gguf_tokenizer_config(file, "m")["bos_token"] == "<s>");
  CHECK(!gguf_chat_template(file));
  file.keys.emplace_back("tokenizer.chat_template", std::string("{{ 1 }}"));
  CHECK(gguf_chat_template(file) == "{{ 1 }}");
  file.keys.emplace_back("tokenizer.chat_template.tool_use", std::string("{{ 2 }}"));
  CHECK(!gguf_chat_template(file));
  CHECK(gguf_tokenizer_config(file, "m")["chat_template"] ==
        Json::array({{{"name", "default"}, {"template", "{{ 1 }}"}},
                     {{"name", "tool_use"}, {"template", "{{ 2 }}"}}}));
  set(file, "bos_token_id", uint32_t{4000000});
  CHECK_THROWS_WITH_AS(gguf_tokenizer_config(file, "m"),
                       doctest::Contains("`tokenizer.ggml.bos_token_id`: found 4000000"),
                       DataError);
}

TEST_CASE("what a GGUF file says wrongly of its tokenizer is named") {
  const TokenizerFolder folder("qwen2");
  const auto says = [&](const std::string& key, GgufValue value, const std::string& part) {
    GgufFile file = folder.file();
    set(file, key, std::move(value));
    const std::string found = problem_of_keys(file);
    CAPTURE(found);
    CHECK(found.find(part) != found.npos);
    CHECK(found.starts_with("m.gguf: "));
  };
  using Texts = std::vector<std::string>;
  says("model", std::string("t5"), "`tokenizer.ggml.model`: found t5");
  says("pre", std::string("nobody"), "`tokenizer.ggml.pre`: found `nobody`");
  says("tokens", uint32_t{1}, "`tokenizer.ggml.tokens`: is missing");
  says("tokens", GgufArray(Texts{"a"}), "`tokenizer.ggml.token_type`");
  says("merges", GgufArray(Texts{"ab"}), "`tokenizer.ggml.merges`: found \"ab\"");
  GgufFile file = folder.file();
  set(file, "model", std::string("llama"));
  CHECK(problem_of_keys(file).find("`tokenizer.ggml.scores`: expected") != std::string::npos);
  CHECK(!has_gguf_tokenizer(GgufFile{}));
  CHECK(has_gguf_tokenizer(file));
}

TEST_CASE("a model without a tokenizer keeps the ids that end a text") {
  const TokenizerFolder folder("qwen2");
  GgufFile file;
  file.keys = gguf_tokenizer(folder.path, {.size = 10, .bos = 1, .pad = 12, .eos = {2, 5}}).keys;
  CHECK(!has_gguf_tokenizer(file));
  CHECK(gguf_end_ids(file) == std::vector<int32_t>{2, 5});
  CHECK(gguf_token_id(file, "bos") == 1);
  CHECK(!gguf_token_id(file, "padding"));
}
