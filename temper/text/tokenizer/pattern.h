// The patterns of Split and Replace: a literal string, a regular expression or a class of
// characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "temper/text/json_field.h"
#include "temper/text/regex.h"

namespace temper {

class Pattern {
 public:
  using CharClass = bool (*)(char32_t);

  // {"String": ".."} or {"Regex": ".."}.
  static Pattern parse(const JsonField& field);
  explicit Pattern(CharClass chars) : what_(chars) {}  // each such character is a match
  explicit Pattern(std::string literal) : what_(std::move(literal)) {}  // not empty
  explicit Pattern(Regex regex) : what_(std::move(regex)) {}

 private:
  friend class Matches;
  std::variant<CharClass, std::string, Regex> what_;
};

// The matches of a pattern in a text, from left to right, without overlap. An empty match right
// behind a match is none, and nothing matches in an empty text.
class Matches {
 public:
  Matches(const Pattern& pattern, std::string_view text) : pattern_(pattern), text_(text) {}
  bool next(Regex::Match& match);

 private:
  bool search(Regex::Match& match) const;

  const Pattern& pattern_;
  std::string_view text_;
  size_t from_ = 0;
  std::optional<size_t> last_end_;
};

// Throws DataError where the result has more than `most` bytes.
std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content,
                        size_t most = SIZE_MAX);

}  // namespace temper
