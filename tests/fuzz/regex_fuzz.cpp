// Any bytes as a pattern of a tokenizer.json, up to a line end, and a text behind it: a pattern is
// refused, or its matches lie in the text one behind the other. Seeds: tests/fuzz/seeds/regex.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "temper/base/error.h"
#include "temper/text/regex.h"
#include "temper/text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t line = all.find('\n');
  if (line == all.npos || valid_utf8_prefix(all.substr(line + 1)) + line + 1 < all.size()) return 0;
  const std::string_view text = all.substr(line + 1);
  try {
    const Regex regex(all.substr(0, line), "pattern");
    Regex::Match match{};
    size_t from = 0;
    for (int found = 0; found < 100 && from <= text.size(); ++found) {
      if (!regex.find(text, from, match)) break;
      if (match.begin < from || match.end < match.begin || match.end > text.size()) std::abort();
      from = match.end > match.begin ? match.end : match.end + 1;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    }
  } catch (const DataError& e) {
    if (!std::string_view(e.what()).starts_with("pattern")) std::abort();
  }
  return 0;
}
