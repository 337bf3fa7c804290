// libFuzzer harness: the input is a tokenizer.json, then a text for it. Nothing but DataError may
// escape, and a stream must give what decoding at once gives. Seeds: the "tokenizer" members of
// tests/golden/tokenizers.
#include <cstdint>
#include <cstdlib>

#include "temper/base/error.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace {

constexpr std::string_view kText =
    " It's 12 caf\xC3\xA9s,\n\n\xE2\x96\x81\xE2\x96\x81x <s>  ab\xF0\x9F\x98\x80 e\xCC\x81 \xFF.";

void exercise(const temper::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text, true);
  ids.insert(ids.end(), {0, 5, -1, tokenizer.vocab_size()});
  for (const bool skip : {false, true}) {
    temper::StreamDecoder stream(tokenizer, skip);
    std::string joined;
    for (const int32_t id : ids) joined += stream.push(id);
    joined += stream.finish();
    if (joined != tokenizer.decode(ids, skip)) std::abort();
  }
  for (const int32_t id : ids) tokenizer.id_of(tokenizer.token_of(id));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = temper::Tokenizer::parse(input, "fuzz");
    exercise(*tokenizer, kText);
    exercise(*tokenizer, input.substr(0, 400));
  } catch (const temper::DataError&) {
  }
  return 0;
}
