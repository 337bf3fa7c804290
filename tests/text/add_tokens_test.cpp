#include <doctest/doctest.h>

#include "temper/text/tokenizer/tokenizer_file.h"
#include "tests/text/golden.h"

namespace temper {

TEST_CASE("tokens that are added to a tokenizer.json are those of transformers' add_tokens") {
  const Json golden = read_json_file(golden_path("added_tokens.json"));
  const auto tokens = golden.at("tokens").get<std::vector<std::string>>();
  for (const auto& [name, expected] : golden.at("tokenizers").items()) {
    CAPTURE(name);
    const std::string text = golden_tokenizer_file(name).at("tokenizer").dump(2);
    const auto first = expected.at("new_ids")[0].get<int32_t>();
    const std::string added = with_added_tokens(text, tokens, first);
    const auto tokenizer = Tokenizer::parse(added, name);
    const Json list = parse_json(added, name).at("added_tokens");
    for (size_t i = 0; i < tokens.size(); ++i) {
      CHECK(tokenizer->id_of(tokens[i]) == expected.at("new_ids")[i].get<int32_t>());
      CHECK(list[list.size() - tokens.size() + i] == expected.at("written")[i]);
    }
    for (size_t i = 0; i < golden.at("texts").size(); ++i) {
      const auto line = golden.at("texts")[i].get<std::string>();
      CAPTURE(line);
      CHECK(tokenizer->encode(line) == expected.at("ids")[i].get<std::vector<int32_t>>());
    }
  }
}

TEST_CASE("all else of a tokenizer.json stays as it is where tokens are added") {
  const std::string kItem =
      R"({"id":7,"content":"a\"]b","single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":true,"special":false})";
  const auto with = [](const std::string& text) { return with_added_tokens(text, {"a\"]b"}, 7); };
  CHECK(with(R"({"model": {"added_tokens": [1]}, "added_tokens" : [{"x": "]"}] , "y": 1})") ==
        R"({"model": {"added_tokens": [1]}, "added_tokens" : [{"x": "]"},)"
        "\n    " +
            kItem + R"(] , "y": 1})");
  CHECK(with("{\"added_tokens\": [ ]}") == "{\"added_tokens\": [\n    " + kItem + " ]}");
  CHECK(with("{\"added_tokens\": null}") == "{\"added_tokens\": [\n    " + kItem + "\n  ]}");
  CHECK(with("{\"y\": \"added_tokens\"}") ==
        "{\n  \"added_tokens\": [\n    " + kItem + "\n  ],\"y\": \"added_tokens\"}");
}

}  // namespace temper
