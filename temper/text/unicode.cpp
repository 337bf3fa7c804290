#include "temper/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "temper/base/error.h"
#include "temper/text/unicode_tables.h"

namespace temper {
namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

template <size_t N>
bool contains(const CharRange (&table)[N], char32_t c) {
  const auto* range = std::lower_bound(std::begin(table), std::end(table), c,
                                       [](const CharRange& r, char32_t x) { return r.last < x; });
  return range != std::end(table) && range->first <= c;
}

bool is_ascii(std::string_view text) {
  unsigned char any = 0;
  for (const unsigned char c : text) any |= c;
  return any < 0x80;
}

struct Utf8Step {
  size_t length;  // bytes of the character, or of the maximal part of a broken one
  bool valid;
  bool unfinished;  // broken only because the text ends
};

// One step of decoding, after table 3-7 of the Unicode standard (well-formed byte sequences).
Utf8Step utf8_step(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t k = 1; k < length; ++k) {
    if (i + k == text.size()) return {k, false, true};
    unsigned char low = 0x80, high = 0xBF;
    if (k == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i + k) < low || byte(i + k) > high) return {k, false, false};
  }
  return {length, true, false};
}

// Normalizes one run that holds no character of kNormalizedOtherwise.
void append_normalized(std::string& out, std::string_view run, NormalForm form) {
  if (run.empty()) return;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compatible ? UTF8PROC_COMPAT : 0));
  thread_local std::vector<utf8proc_int32_t> chars;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(run.data());
  const auto size = static_cast<utf8proc_ssize_t>(run.size());
  if (chars.size() < run.size()) chars.resize(run.size());
  auto count = utf8proc_decompose(bytes, size, chars.data(),
                                  static_cast<utf8proc_ssize_t>(chars.size()), options);
  if (count > static_cast<utf8proc_ssize_t>(chars.size())) {
    chars.resize(static_cast<size_t>(count));
    count = utf8proc_decompose(bytes, size, chars.data(), count, options);
  }
  check(count >= 0, "utf8proc: ", utf8proc_errmsg(count));
  if (compose) count = utf8proc_normalize_utf32(chars.data(), count, options);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_char(out, static_cast<char32_t>(chars[i]));
}

// `run` has no ASCII character but perhaps its first.
void append_normalized_between(std::string& out, std::string_view run, NormalForm form) {
  size_t start = 0;
  for (size_t i = 0; i < run.size();) {
    const size_t at = i;
    if (!contains(kNormalizedOtherwise, next_char(run, i))) continue;
    append_normalized(out, run.substr(start, at - start), form);
    out.append(run.substr(at, i - at));
    start = i;
  }
  append_normalized(out, run.substr(start), form);
}

template <size_t N>
std::string class_ranges(const CharRange (&table)[N]) {
  char buffer[40];
  std::string out;
  for (const CharRange& range : table) {
    snprintf(buffer, sizeof buffer, "\\x{%x}-\\x{%x}", static_cast<unsigned>(range.first),
             static_cast<unsigned>(range.last));
    out += buffer;
  }
  return out;
}
}  // namespace

char32_t next_char(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  if (lead < 0x80) return byte(i++);
  char32_t c;
  if (lead < 0xE0) {
    c = static_cast<char32_t>(lead & 0x1F) << 6 | (byte(i + 1) & 0x3F);
    i += 2;
  } else if (lead < 0xF0) {
    c = static_cast<char32_t>(lead & 0x0F) << 12 | static_cast<char32_t>(byte(i + 1) & 0x3F) << 6 |
        (byte(i + 2) & 0x3F);
    i += 3;
  } else {
    c = static_cast<char32_t>(lead & 0x07) << 18 | static_cast<char32_t>(byte(i + 1) & 0x3F) << 12 |
        static_cast<char32_t>(byte(i + 2) & 0x3F) << 6 | (byte(i + 3) & 0x3F);
    i += 4;
  }
  return c;
}

char32_t previous_char(std::string_view text, size_t& end) {
  do {
    --end;
  } while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  size_t i = end;
  return next_char(text, i);
}

void append_char(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  char bytes[4];
  size_t n = 0;
  if (c < 0x800) {
    bytes[n++] = static_cast<char>(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    bytes[n++] = static_cast<char>(0xE0 | c >> 12);
    bytes[n++] = static_cast<char>(0x80 | (c >> 6 & 0x3F));
  } else {
    bytes[n++] = static_cast<char>(0xF0 | c >> 18);
    bytes[n++] = static_cast<char>(0x80 | (c >> 12 & 0x3F));
    bytes[n++] = static_cast<char>(0x80 | (c >> 6 & 0x3F));
  }
  bytes[n++] = static_cast<char>(0x80 | (c & 0x3F));
  out.append(bytes, n);
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const Utf8Step step = utf8_step(text, i);
    if (!step.valid) break;
    i += step.length;
  }
  return i;
}

std::string repair_utf8(std::string_view text, bool keep_tail, size_t* tail) {
  if (tail) *tail = 0;
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    if (step.unfinished && keep_tail) {
      if (tail) *tail = step.length;
      break;
    }
    out.append(step.valid ? text.substr(i, step.length) : kReplacement);
    i += step.length;
  }
  return out;
}

namespace {

// Format characters that say nothing by themselves: all of General_Category Cf but the two joiners
// (emoji, Indic scripts), and the separators of lines and paragraphs.
bool is_invisible(char32_t c) {
  if (c == 0x2028 || c == 0x2029) return true;
  return c != 0x200C && c != 0x200D &&
         utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_CF;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::string repaired = repair_utf8(text);
  std::string out;
  const auto escape = [&out, kDigits](unsigned char code) {
    out += {'\\', 'x', kDigits[code >> 4], kDigits[code & 15]};
  };
  const auto escape_char = [&out, kDigits](char32_t code) {
    out += code > 0xFFFF ? "\\u{" : "\\u";
    for (int shift = code > 0xFFFF ? 16 : 12; shift >= 0; shift -= 4)
      out += kDigits[(code >> shift) & 15];
    if (code > 0xFFFF) out += '}';
  };
  for (size_t i = 0; i < repaired.size(); ++i) {
    const auto byte = static_cast<unsigned char>(repaired[i]);
    const auto next = i + 1 < repaired.size() ? static_cast<unsigned char>(repaired[i + 1]) : 0;
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      escape(byte);
    } else if (byte == 0xC2 && next < 0xA0) {  // U+0080 to U+009F
      escape(static_cast<unsigned char>(next));
      ++i;
    } else if (byte < 0xC2) {
      out += repaired[i];
    } else {
      size_t end = i;
      const char32_t c = next_char(repaired, end);
      if (is_invisible(c))
        escape_char(c);
      else
        out.append(repaired, i, end - i);
      i = end - 1;
    }
  }
  return out;
}

std::string printable_line(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else
      out += c;
  }
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) ||
         contains(kNewNumeric, c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO)
    return !contains(kLaterPunctuation, c);
  return contains(kFormerPunctuation, c);
}

bool is_word_char(char32_t c) {
  if (c < 0x80)
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL)
    return true;  // L M Nd Nl
  if (category == UTF8PROC_CATEGORY_PC) return true;
  // Symbols that are Alphabetic (the circled and squared letters), and Join_Control.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C ||
      c == 0x200D)
    return true;
  return c > 0xFF && contains(kNewWord, c);  // Oniguruma alone counts superscripts and fractions
}

std::string lowercase(std::string_view utf8) {
  std::string out;
  out.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    const char32_t c = next_char(utf8, i);
    if (c == 0x130) {  // the one letter whose lower case is two characters
      out += "i\xCC\x87";
      continue;
    }
    const auto* row = std::find_if(std::begin(kNewLowercase), std::end(kNewLowercase),
                                   [&](const CharShift& r) { return r.first <= c && c <= r.last; });
    append_char(out,
                c < 0x80 ? (c >= 'A' && c <= 'Z' ? c + 32 : c)
                : row != std::end(kNewLowercase)
                    ? static_cast<char32_t>(static_cast<int>(c) + row->shift)
                    : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

std::string normalize(std::string_view utf8, NormalForm form) {
  if (is_ascii(utf8)) return std::string(utf8);
  std::string out;
  out.reserve(utf8.size() + utf8.size() / 8);
  // ASCII never changes and never joins what stands before it: text falls apart before every ASCII
  // character, and what remains to be done is an ASCII character (it may take an accent) and the
  // others behind it.
  const auto ascii = [&](size_t i) { return static_cast<unsigned char>(utf8[i]) < 0x80; };
  for (size_t i = 0; i < utf8.size();) {
    const size_t plain = i;
    while (i + 1 < utf8.size() && ascii(i) && ascii(i + 1)) ++i;
    out.append(utf8.substr(plain, i - plain));
    const size_t run = i++;
    while (i < utf8.size() && !ascii(i)) ++i;
    append_normalized_between(out, utf8.substr(run, i - run), form);
  }
  return out;
}

std::string_view new_class_ranges(std::string_view property) {
  static const struct {
    std::string_view name;
    std::string ranges;
  } kTable[] = {
      {"L", class_ranges(kNewL)},     {"Lu", class_ranges(kNewLu)},
      {"Ll", class_ranges(kNewLl)},   {"Lo", class_ranges(kNewLo)},
      {"Lm", class_ranges(kNewLm)},   {"M", class_ranges(kNewM)},
      {"N", class_ranges(kNewN)},     {"Nd", class_ranges(kNewNd)},
      {"P", class_ranges(kNewP)},     {"S", class_ranges(kNewS)},
      {"Han", class_ranges(kNewHan)}, {"Word", class_ranges(kNewWord)},
  };
  for (const auto& row : kTable)
    if (row.name == property) return row.ranges;
  return {};
}

}  // namespace temper
