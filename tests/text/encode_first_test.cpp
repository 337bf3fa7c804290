// The first ids of a text, without tokenizing the rest of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/text/tokenizer/tokenizer.h"
#include "tests/text/golden.h"

using namespace temper;

TEST_CASE("the first ids of a text are the first of all its ids, whatever the tokenizer") {
  std::string text;
  for (const Json& one : golden_tokenizer_file("texts")) text += one.get<std::string>() + " ";
  for (const char* name :
       {"folding", "gemma", "gpt2", "llama2_legacy", "llama3", "metaspace_always",
        "metaspace_first", "metaspace_never", "qwen2", "split_contiguous", "split_isolated",
        "split_mergedwithnext", "split_mergedwithprevious", "split_removed"}) {
    CAPTURE(name);
    const auto tokenizer = golden_tokenizer(name);
    const std::vector<int32_t> all = tokenizer->encode(text);
    REQUIRE(all.size() > 200);
    for (const size_t limit : {size_t{0}, size_t{1}, size_t{7}, size_t{50}, all.size() - 1,
                               all.size(), all.size() + 1, SIZE_MAX}) {
      const std::vector<int32_t> first = tokenizer->encode_first(text, limit);
      REQUIRE(first.size() >= std::min(limit, all.size()));
      REQUIRE(first.size() <= all.size());
      CHECK(std::equal(first.begin(), first.end(), all.begin()));
    }
  }
}

TEST_CASE("what stands behind the first ids is left alone") {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "words and more words, ";
  for (const char* name : {"gemma", "gpt2", "llama2_legacy", "llama3", "qwen2"}) {
    CAPTURE(name);
    const auto tokenizer = golden_tokenizer(name);
    CHECK(tokenizer->encode_first(text, 100).size() < 150);
  }
}
