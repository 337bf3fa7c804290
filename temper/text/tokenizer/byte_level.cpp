#include "temper/text/tokenizer/byte_level.h"

#include <array>

#include "temper/text/unicode.h"

namespace temper {
namespace {

struct Alphabet {
  std::array<char32_t, 256> chars{};
  std::array<short, 0x144> bytes{};  // by character; -1: none

  // Printable Latin-1 bytes are themselves, the others follow from U+0100 on in their order.
  constexpr Alphabet() {
    for (short& byte : bytes) byte = -1;
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
      const char32_t c = printable ? static_cast<char32_t>(b) : next++;
      chars[static_cast<size_t>(b)] = c;
      bytes[c] = static_cast<short>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t byte_to_char(unsigned char byte) { return kAlphabet.chars[byte]; }

std::optional<unsigned char> char_to_byte(char32_t c) {
  if (c >= kAlphabet.bytes.size() || kAlphabet.bytes[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(kAlphabet.bytes[c]);
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char b : bytes) append_char(out, byte_to_char(static_cast<unsigned char>(b)));
  return out;
}

std::string from_byte_level(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size();) {
    const auto byte = char_to_byte(next_char(token, i));
    if (!byte) return std::string(token);
    out += static_cast<char>(*byte);
  }
  return out;
}

}  // namespace temper
