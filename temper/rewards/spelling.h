// Rewrites what LaTeX and plain text spell in several ways in one spelling, and splits a text into
// parts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper::rewards {

inline constexpr char kDegree = '\x01';             // stands for a degree sign after a number
inline constexpr std::string_view kUnion = "\x02";  // stands for a union sign between sets

// ASCII alone, whatever the locale.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The text without commands of size, space and dollar signs; \dfrac becomes \frac, \cdot becomes *,
// {,}, "and" and "or" become ",", and thousands are joined where a comma cannot separate a list.
// Words in \text{} stay there, and functions of several arguments, gcd(a, b), get their command's
// name. A set without elements is \emptyset.
std::string plain_spelling(std::string_view text);

// The content where all of the text is \text{...} or another command that sets words, else the
// text.
std::string_view without_text_command(std::string_view text);

// An answer of words in lower case, without commands, braces, spaces and a closing point. nullopt:
// it is not an answer of words.
std::optional<std::string> words_of(std::string_view text);

// Whether a function of this name has a list of arguments: max, min, gcd, lcm.
bool takes_list(std::string_view name);

std::string lower_case(std::string_view text);

// The index after the brace that closes the one at text[open]; npos: none does.
size_t end_of_braces(std::string_view text, size_t open);

// The parts between separators that stand outside of all brackets, trimmed. The closing bracket may
// be of another kind than the opening one: [0,1).
std::vector<std::string_view> split_outside(std::string_view text, std::string_view separators);

// Goes through a text from bracket to bracket: "(", "[", "{", "\{" and those that close them. What
// is escaped by \ is passed over.
class BracketScan {
 public:
  explicit BracketScan(std::string_view text) : text_(text) { look(); }
  bool done() const { return at_ >= text_.size(); }
  void next() { skip(size_); }
  void skip(size_t bytes);  // goes on behind so many bytes, which hold no bracket

  size_t at() const { return at_; }
  // the opening bracket at this place; empty: none
  std::string_view opening() const { return opening_; }
  std::string_view closing() const { return closing_; }
  int depth() const { return depth_; }  // the depth after the bracket at this place

 private:
  void look();

  std::string_view text_, opening_, closing_;
  size_t at_ = 0, size_ = 1;
  int depth_ = 0;
};

}  // namespace temper::rewards
