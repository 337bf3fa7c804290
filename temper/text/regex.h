// Regular expressions of tokenizer.json: written for Oniguruma, matched by PCRE2 with its JIT
// compiler.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace temper {

class Regex {
 public:
  // Compiles an Oniguruma pattern (Ruby syntax). Throws DataError("WHERE: ...") when it is not
  // valid or uses what PCRE2 lacks (set operations in a class).
  Regex(std::string_view pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The next match in text (valid UTF-8) that starts at `from` or later. Throws DataError when the
  // pattern needs more steps or memory than is sane.
  struct Match {
    size_t begin, end;
  };
  // group: what the pattern's first group matched, at npos where it has none or did not take part;
  // null: not asked for.
  bool find(std::string_view text, size_t from, Match& match, Match* group = nullptr) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

// The pattern in PCRE2's syntax; what a shorthand matches is spelled out where the two libraries
// differ.
std::string pcre2_pattern(std::string_view oniguruma, const std::string& where);

}  // namespace temper
