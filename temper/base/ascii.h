// Texts of ASCII, whatever the locale.
#pragma once

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

}  // namespace temper
