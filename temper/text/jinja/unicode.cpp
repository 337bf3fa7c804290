#include "temper/text/jinja/unicode.h"

#include <utf8proc.h>

namespace temper::jinja {
namespace {
utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<int32_t>(c)); }

bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}
}  // namespace

char32_t next_code_point(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char first = byte(i);
  if (first < 0x80) return byte(i++);
  int32_t c = 0;
  const auto length = utf8proc_iterate(reinterpret_cast<const uint8_t*>(text.data()) + i,
                                       static_cast<utf8proc_ssize_t>(text.size() - i), &c);
  if (length <= 0) return byte(i++);
  i += static_cast<size_t>(length);
  return static_cast<char32_t>(c);
}

void append_code_point(std::string& out, char32_t c) {
  uint8_t buffer[4];
  const auto length = utf8proc_encode_char(static_cast<int32_t>(c), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(length));
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

size_t byte_of_code_point(std::string_view text, size_t n) {
  size_t i = 0;
  for (; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 && n-- == 0) break;
  }
  return i;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    next_code_point(text, i);
    out.push_back(text.substr(start, i - start));
  }
  return out;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= ' ');
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= ' ';
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (c == 0xdf)
      out += "SS";
    else
      append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(c))));
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (c == 0x130)
      out += "i\xcc\x87";
    else
      append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))));
  }
  return out;
}

std::string to_title_case(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (c == 0xdf)
      out += "Ss";
    else
      append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(c))));
  }
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  for (size_t start = 0; start < text.size();) {
    size_t end = text.size(), next = text.size();
    for (size_t i = start; i < text.size();) {
      const size_t here = i;
      const char32_t c = next_code_point(text, i);
      if (!is_line_end(c)) continue;
      if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
      end = here;
      next = i;
      break;
    }
    lines.push_back(text.substr(start, (keep_ends ? next : end) - start));
    start = next;
  }
  return lines;
}

std::string_view strip_left(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    if (!is_space(next_code_point(text, i))) return text.substr(start);
  }
  return {};
}

std::string_view strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    size_t i = start;
    if (!is_space(next_code_point(text, i))) break;
    end = start;
  }
  return text.substr(0, end);
}

}  // namespace temper::jinja
