// Functions on text that filters and string methods share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/text/jinja/value.h"

namespace temper::jinja {

class Runtime;

// First place of `part` at or after byte `from`, in linear time; npos when there is none.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);

// markupsafe.escape: Markup as it is, all else as text with & < > ' " replaced.
Value escaped(const Value& value);

// str.replace; a negative count means all. Paid for before it is made.
std::string replace_text(Runtime& runtime, const std::string& text, const std::string& old,
                         const std::string& with, int64_t count);

// str.strip and its halves: white space, or any of `chars`.
std::string strip_text(std::string_view text, const std::optional<std::string>& chars, bool left,
                       bool right);

// str.split (from the right: str.rsplit); without a separator at runs of white space. Negative max:
// no limit.
std::vector<std::string> split_text(std::string_view text,
                                    const std::optional<std::string>& separator, int64_t max,
                                    bool from_right);

// str.capitalize and str.title.
std::string capitalize(std::string_view text);
std::string title_words(std::string_view text);

// Python's int(text, base) and float(text): surrounding space, signs, underscores, prefixes;
// nothing when not a number. parse_integer throws Failure for one beyond 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
std::optional<double> parse_real(std::string_view text);

// Adds as many fill characters as bring the text to `width`, as str.center, ljust and rjust do.
enum class Side { kLeft, kRight, kBoth };
std::string pad(Runtime& runtime, const std::string& text, int64_t width, const std::string& fill,
                Side text_side);

}  // namespace temper::jinja
