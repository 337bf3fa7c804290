// What is shown of a completion while it grows.
#include "temper/generate/text_stream.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/json.h"

using namespace temper;
using namespace temper::generate;

namespace {

// Every ASCII character that is used here is a token.
std::shared_ptr<const Tokenizer> eight_letters() {
  Json vocabulary = {{"<end>", 0}};
  for (const char c : std::string_view("abcdefgh"))
    vocabulary[std::string(1, c)] = vocabulary.size();
  Json json = Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "post_processor": null,
    "added_tokens": [{"id": 0, "content": "<end>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": false},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": false},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "merges": []}
  })");
  json["model"]["vocab"] = vocabulary;
  return Tokenizer::parse(json.dump(), "test");
}

}  // namespace

TEST_CASE("what is shown is never taken back, and in the end is the text up to the stop text") {
  const auto tokenizer = eight_letters();
  const std::vector<std::string> stop{"cde", "eg", "dd"};
  for (const std::string text : {"abcabcdefg", "abeaeegh", "abcdd", "ccdc", "e", "cd"}) {
    CAPTURE(text);
    const std::vector<int32_t> tokens = tokenizer->encode(text);
    TextStream stream(*tokenizer, stop);
    std::string shown;
    std::vector<int32_t> pushed;
    for (const int32_t token : tokens) {
      pushed.push_back(token);
      const bool stopped = stream.push(token);
      CHECK(stream.shown().starts_with(shown));
      shown = std::string(stream.shown());
      const std::string whole = text_of(*tokenizer, pushed, stop);
      CHECK(whole.starts_with(shown));
      CHECK(stopped == (whole.size() < pushed.size()));
      if (stopped) {
        CHECK(shown == whole);
        break;
      }
    }
    CHECK(text_of(*tokenizer, tokens, stop).starts_with(shown));
  }
}
