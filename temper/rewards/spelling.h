// One spelling for what LaTeX and plain text write in several ways, and the parts of a text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper::rewards {

inline constexpr char kDegree = '\x01';             // after a number: its degrees
inline constexpr std::string_view kUnion = "\x02";  // between sets

// Of ASCII, whatever the locale.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Without commands of size, space and dollar signs; \dfrac as \frac, \cdot as *, "," for {,} and
// for "and" and "or", thousands joined where a comma cannot separate a list. Words in \text{} stay
// there.
std::string plain_spelling(std::string_view text);

// The content where all of the text is \text{...} or another command that sets words, else the
// text.
std::string_view without_text_command(std::string_view text);

// What an answer of words says: lower case, without commands, braces, spaces and a closing point.
// nullopt: it is no answer of words.
std::optional<std::string> words_of(std::string_view text);

std::string lower_case(std::string_view text);

// One past the brace that closes the one at text[open]; npos: none does.
size_t end_of_braces(std::string_view text, size_t open);

// Parts between separators outside of all brackets, trimmed. Brackets may close otherwise than they
// opened: [0,1).
std::vector<std::string_view> split_outside(std::string_view text, std::string_view separators);

// The bracket at text[at], its bytes: "(", "[", "{" or "\{"; empty: none.
std::string_view opening_at(std::string_view text, size_t at);
std::string_view closing_at(std::string_view text, size_t at);

}  // namespace temper::rewards
