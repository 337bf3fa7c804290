// Text as Python's str sees it: a sequence of code points, held as valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace temper::jinja {

// The code point at byte `i`, which moves past it. Stray bytes come out as themselves, one at a
// time.
char32_t next_code_point(std::string_view text, size_t& i);
void append_code_point(std::string& out, char32_t c);
size_t count_code_points(std::string_view text);
// The byte where the n-th code point begins, or the text's end.
size_t byte_of_code_point(std::string_view text, size_t n);
// Each character as a string of its own.
std::vector<std::string_view> characters(std::string_view text);

// str.isspace, isprintable, isalpha, isdecimal/isdigit, isnumeric of one character; `\w` of the re
// module.
bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_word(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);

// Simple case mappings, and the common full ones (the sharp s, the dotted capital I).
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
// one character in title case, as capitalize() writes the first
std::string to_title_case(std::string_view text);

// str.splitlines() and str.split(): at Unicode line ends, and at runs of white space.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

}  // namespace temper::jinja
