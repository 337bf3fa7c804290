// Unicode as the tokenizers need it: UTF-8, a few character classes, normalization. Where the
// version of Unicode matters, the answers are those of Hugging Face's `tokenizers` 0.23 and not of
// whichever library is installed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace temper {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// The character at text[i] of valid UTF-8; moves i behind it.
char32_t next_char(std::string_view text, size_t& i);

// The character that ends at text[end] of valid UTF-8, end > 0; moves end to its start.
char32_t previous_char(std::string_view text, size_t& end);

void append_char(std::string& out, char32_t c);

// Length of the longest prefix of text that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);

// The text with each maximal part that is no UTF-8 replaced by U+FFFD. With keep_tail, an
// unfinished character at the end is left out, and `tail`, if given, says how many bytes it has.
std::string repair_utf8(std::string_view text, bool keep_tail = false, size_t* tail = nullptr);

// The repaired text for a terminal: control characters but line breaks and tabs, which could move
// its cursor or change its title, as \xNN; characters that are not seen, or that change the order
// in which others are (those of bidirectional text, tags, zero-width spaces), as \uNNNN or
// \u{NNNNN}.
std::string printable(std::string_view text);
// For a line of a table: line breaks and tabs, too, as \n and \t.
std::string printable_line(std::string_view text);

bool is_white_space(char32_t c);  // White_Space
bool is_numeric(char32_t c);      // general category N
bool is_punctuation(char32_t c);  // ASCII punctuation, or general category P
bool is_word_char(char32_t c);    // Alphabetic, M, Nd, Pc or Join_Control

std::string lowercase(std::string_view utf8);
std::string normalize(std::string_view utf8, NormalForm form);

// Ranges of a regular expression's character class ("\x{897}\x{1c89}-\x{1c8a}") with the characters
// of a general category or property (L, Lu, M, N, Nd, P, S, Han, ... ) that Unicode 15 and 16
// added; empty for other names.
std::string_view new_class_ranges(std::string_view property);

}  // namespace temper
