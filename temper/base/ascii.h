// Texts of ASCII, whatever the locale. Only a header: plug-ins without the program use it, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temper {

// Only A to Z change; bytes of other characters stay.
inline std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  return out;
}

// Base64 (RFC 4648, section 4).
inline constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Appends the digits of `bytes`, four for each three, "=" where bytes are missing at the end.
inline void append_base64(std::string_view bytes, std::string& out) {
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : kBase64Digits[bits >> (18 - 6 * k) & 63];
  }
}

}  // namespace temper
