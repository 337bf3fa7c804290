// The byte-level alphabet of GPT-2: each byte is written as one printable character ("Ġ" is the
// space).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace temper {

char32_t byte_to_char(unsigned char byte);
std::optional<unsigned char> char_to_byte(char32_t c);

std::string to_byte_level(std::string_view bytes);

// Bytes that a token stands for; a token with a character outside of the alphabet stands for
// itself.
std::string from_byte_level(std::string_view token);

}  // namespace temper
