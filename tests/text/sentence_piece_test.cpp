// tokenizer.model against the sentencepiece package and transformers. Goldens:
// tests/golden/make_sentencepiece_goldens.py.
#include "temper/text/tokenizer/sentence_piece.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "tests/golden.h"

using namespace temper;

TEST_CASE("tokenizer.model gives the ids of SentencePiece around the added tokens") {
  const Json expected = read_json_file(golden_path("sentencepiece/expected.json"));
  REQUIRE(expected.size() == 4);
  for (const auto& [name, rows] : expected.items()) {
    const auto tokenizer = Tokenizer::load_directory(golden_path("sentencepiece/" + name));
    REQUIRE(tokenizer);
    for (const Json& row : rows) {
      CAPTURE(name);
      CAPTURE(row[0]);
      const auto text = row[0].get<std::string>();
      const auto ids = tokenizer->encode(text);
      CHECK(ids == row[1].get<std::vector<int32_t>>());
      // Back to the text, but for what the model's normalizer does and the space in front.
      if (name == "gemma")
        CHECK(tokenizer->decode(ids) == (text == "▁mark ▁ it" ? " mark   it" : text));
    }
  }
}

TEST_CASE("special tokens of tokenizer.model and tokenizer_config.json") {
  const auto llama = Tokenizer::load_directory(golden_path("sentencepiece/llama"));
  CHECK(llama->encode("the", true).front() == 1);
  CHECK(llama->tokens_after_text().empty());
  CHECK(llama->id_of("</s>") == 2);
  CHECK(llama->is_special(2));
  CHECK(llama->decode(llama->encode("the quick  fox")) == "the quick  fox");
  CHECK(llama->vocab_size() == *llama->id_of("<extra>") + 1);
  const auto gemma = Tokenizer::load_directory(golden_path("sentencepiece/gemma"));
  CHECK(gemma->tokens_before_text() == std::vector<int32_t>{1});
  CHECK(gemma->tokens_after_text() == std::vector<int32_t>{2});
  CHECK(gemma->token_of(*gemma->id_of("<turn>")) == "<turn>");
  CHECK_FALSE(Tokenizer::load_directory(golden_path("sentencepiece/nowhere")));
}

TEST_CASE("a damaged tokenizer.model is a DataError") {
  const std::string model = read_file(golden_path("sentencepiece/llama/tokenizer.model"));
  for (size_t size : {size_t{0}, size_t{1}, size_t{7}, model.size() / 2, model.size() - 1}) {
    CAPTURE(size);
    CHECK_THROWS_AS(SentencePiece(model.substr(0, size), "x.model"), DataError);
  }
  CHECK_THROWS_WITH_AS(SentencePiece("{\"model\": 1}", "x.model"),
                       doctest::Contains("x.model: not a SentencePiece model"), DataError);
}
