#include "temper/text/jinja/parse/lexer.h"

#include <cstdio>
#include <cstdlib>

#include "temper/base/error.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {
using Kind = Token::Kind;

// Line ends become \n, and one at the very end is dropped.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
int digit_value(char c) {
  if (is_ascii_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)) {}
  std::vector<Token> run();

 private:
  bool at(std::string_view what) const { return source_.compare(pos_, what.size(), what) == 0; }
  bool done() const { return pos_ >= source_.size(); }
  [[noreturn]] void fail(const std::string& message) const { throw SyntaxFailure(line_, message); }

  // Moves over n bytes, counting lines.
  void advance(size_t n) {
    for (const char c : std::string_view(source_).substr(pos_, n)) line_ += c == '\n';
    pos_ += n;
  }
  void skip_space() {
    const std::string_view rest = std::string_view(source_).substr(pos_);
    advance(rest.size() - strip_left(rest).size());
  }
  void skip_newline() {
    if (at("\n")) advance(1);
  }
  void add(Kind kind, std::string text = {}) { tokens_.push_back({kind, line_, std::move(text)}); }

  void text_until(size_t tag, char sign, bool is_print);
  void tag_at(size_t tag);
  void comment();
  bool raw();
  void inside(Kind end, std::string_view closing);
  bool tag_end(std::string_view closing);
  void token();
  bool number();
  bool integer();
  void push_integer(std::string_view digits, int base, size_t length);
  bool name();
  bool string();
  void operator_token();
  std::string unescape(std::string_view body) const;

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // the last thing read ended a line
  std::string brackets_;    // the closing brackets that are awaited
  std::vector<Token> tokens_;
};

std::vector<Token> Lexer::run() {
  while (!done()) {
    size_t tag = pos_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        tag = std::string::npos;
        break;
      }
      if (is_one_of(source_[tag + 1], "%{#")) break;
    }
    if (tag == std::string::npos) {
      add(Kind::kText, source_.substr(pos_));
      advance(source_.size() - pos_);
      break;
    }
    tag_at(tag);
  }
  add(Kind::kEnd);
  return std::move(tokens_);
}

// Emits the text before a tag. A `-` takes all white space before the tag, and lstrip_blocks the
// indentation of a tag that starts its line, unless it prints or `+` forbids it.
void Lexer::text_until(size_t tag, char sign, bool is_print) {
  std::string_view text = std::string_view(source_).substr(pos_, tag - pos_);
  if (sign == '-') {
    text = strip_right(text);
  } else if (sign != '+' && !is_print) {
    const size_t newline = text.rfind('\n');
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if ((start > 0 || line_start_) && strip_left(text.substr(start)).empty())
      text = text.substr(0, start);
  }
  if (!text.empty()) add(Kind::kText, std::string(text));
  advance(tag - pos_);
}

void Lexer::tag_at(size_t tag) {
  const char kind = source_[tag + 1];
  const char next = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
  const char sign = next == '-' || next == '+' ? next : ' ';
  text_until(tag, sign, kind == '{');
  if (kind == '%' && raw()) return;
  const size_t length = sign == ' ' ? 2 : 3;
  if (kind == '{') add(Kind::kPrintBegin);
  if (kind == '%') add(Kind::kBlockBegin);
  advance(length);
  if (kind == '#')
    comment();
  else if (kind == '{')
    inside(Kind::kPrintEnd, "}}");
  else
    inside(Kind::kBlockEnd, "%}");
}

void Lexer::comment() {
  const size_t end = source_.find("#}", pos_);
  if (end == std::string::npos) fail("Missing end of comment tag");
  const char sign = end > pos_ ? source_[end - 1] : ' ';
  advance(end + 2 - pos_);
  const size_t before = pos_;
  if (sign == '-')
    skip_space();
  else if (sign != '+')
    skip_newline();
  line_start_ = pos_ > before && source_[pos_ - 1] == '\n';
}

// {% raw %} ... {% endraw %}, from the opening tag; false when this tag is another one.
bool Lexer::raw() {
  const auto spaces = [&](size_t p) {
    const std::string_view rest = std::string_view(source_).substr(p);
    return p + rest.size() - strip_left(rest).size();
  };
  const auto has = [&](size_t p, std::string_view what) {
    return source_.compare(p, what.size(), what) == 0;
  };
  const auto after_sign = [&](size_t p) {
    return p < source_.size() && is_one_of(source_[p], "+-") ? p + 1 : p;
  };

  size_t p = spaces(after_sign(pos_ + 2));
  if (!has(p, "raw")) return false;
  p = spaces(p + 3);
  const bool strip = has(p, "-%}");
  if (!strip && !has(p, "%}")) return false;
  const size_t body = strip ? spaces(p + 3) : p + 2;
  advance(body - pos_);
  line_start_ = source_[body - 1] == '\n';

  for (size_t tag = source_.find("{%", body); tag != std::string::npos;
       tag = source_.find("{%", tag + 1)) {
    p = spaces(after_sign(tag + 2));
    if (!has(p, "endraw")) continue;
    p = spaces(p + 6);
    const bool keeps = has(p, "+%}"), strips = has(p, "-%}");
    if (!keeps && !strips && !has(p, "%}")) continue;
    const char sign = source_[tag + 2] == '-' || source_[tag + 2] == '+' ? source_[tag + 2] : ' ';
    text_until(tag, sign, false);
    p += keeps || strips ? 3 : 2;
    if (strips)
      p = spaces(p);
    else if (!keeps && has(p, "\n"))
      ++p;
    advance(p - pos_);
    line_start_ = source_[p - 1] == '\n';
    return true;
  }
  fail("Missing end of raw directive");
}

void Lexer::inside(Kind end, std::string_view closing) {
  brackets_.clear();
  for (;;) {
    if (done()) {
      // The missing end is the parser's error, at the end of the template.
      return;
    }
    if (brackets_.empty() && tag_end(closing)) {
      tokens_.back().kind = end;
      return;
    }
    const size_t before = pos_;
    skip_space();
    if (pos_ == before) token();
  }
}

// Recognises `}}`, `-}}`, `%}`, `-%}` and `+%}` with the white space that each takes along.
bool Lexer::tag_end(std::string_view closing) {
  const bool is_block = closing[0] == '%';
  const bool plain = at(closing);
  const char sign = plain ? ' ' : source_[pos_];
  if (!plain) {
    if (sign != '-' && !(sign == '+' && is_block)) return false;
    if (source_.compare(pos_ + 1, closing.size(), closing) != 0) return false;
  }
  add(Kind::kBlockEnd);
  advance(closing.size() + !plain);
  const size_t before = pos_;
  if (sign == '-')
    skip_space();
  else if (sign == ' ' && is_block)
    skip_newline();
  line_start_ = pos_ > before && source_[pos_ - 1] == '\n';
  return true;
}

void Lexer::token() {
  if (number() || name() || string()) return;
  operator_token();
}

bool Lexer::number() {
  if (!is_ascii_digit(source_[pos_])) return false;
  const auto digits = [&](size_t p) {
    while (p < source_.size() &&
           (is_ascii_digit(source_[p]) ||
            (source_[p] == '_' && p + 1 < source_.size() && is_ascii_digit(source_[p + 1])))) {
      ++p;
    }
    return p;
  };
  const auto digit_at = [&](size_t p) { return p < source_.size() && is_ascii_digit(source_[p]); };
  const auto char_at = [&](size_t p) { return p < source_.size() ? source_[p] : ' '; };

  size_t end = digits(pos_);
  const size_t whole = end;
  if (char_at(end) == '.' && digit_at(end + 1)) end = digits(end + 1);
  if ((char_at(end) | 0x20) == 'e') {
    const size_t sign = char_at(end + 1) == '+' || char_at(end + 1) == '-';
    if (digit_at(end + 1 + sign)) end = digits(end + 1 + sign);
  }
  const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
  if (end == whole || after_dot) return integer();

  std::string text;
  for (size_t i = pos_; i < end; ++i) {
    if (source_[i] != '_') text += source_[i];
  }
  add(Kind::kFloat);
  tokens_.back().real = std::strtod(text.c_str(), nullptr);
  advance(end - pos_);
  return true;
}

bool Lexer::integer() {
  const std::string_view rest = std::string_view(source_).substr(pos_);
  const auto run = [&](size_t p, int base) {  // digits of the base, a single _ allowed before each
    for (;;) {
      const size_t digit = p < rest.size() && rest[p] == '_' ? p + 1 : p;
      if (digit >= rest.size() || digit_value(rest[digit]) >= base) return p;
      p = digit + 1;
    }
  };
  if (rest[0] == '0' && rest.size() > 1) {
    const char mark = static_cast<char>(rest[1] | 0x20);
    const int base = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 0;
    const size_t end = base ? run(2, base) : 0;
    if (end > 2) {
      push_integer(rest.substr(2, end - 2), base, end);
      return true;
    }
  }
  const size_t end = rest[0] == '0' ? run(1, 1) : run(1, 10);
  push_integer(rest.substr(0, end), 10, end);
  return true;
}

void Lexer::push_integer(std::string_view digits, int base, size_t length) {
  add(Kind::kInteger);
  int64_t value = 0;
  for (const char c : digits) {
    if (c == '_') continue;
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, digit_value(c), &value)) {
      if (base != 10) fail("integer literal beyond 64 bits");
      tokens_.back().text = digits;
      std::erase(tokens_.back().text, '_');
      break;
    }
  }
  tokens_.back().integer = value;
  advance(length);
}

bool Lexer::name() {
  size_t end = pos_;
  while (end < source_.size()) {
    size_t next = end;
    if (!is_word(next_code_point(source_, next))) break;
    end = next;
  }
  if (end == pos_) return false;
  size_t first = pos_;
  const char32_t c = next_code_point(source_, first);
  if (c != '_' && !is_alpha(c)) fail("Invalid character in identifier");
  add(Kind::kName, source_.substr(pos_, end - pos_));
  advance(end - pos_);
  return true;
}

bool Lexer::string() {
  const char quote = source_[pos_];
  if (quote != '"' && quote != '\'') return false;
  size_t end = pos_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) fail(str("unexpected char ", quote, ": this string never ends"));
  add(Kind::kString, unescape(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1)));
  advance(end + 1 - pos_);
  return true;
}

void Lexer::operator_token() {
  static const char* const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                          "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                          ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
  for (const std::string_view op : operators) {
    if (!at(op)) continue;
    if (op == "(" || op == "[" || op == "{") {
      brackets_ += op == "(" ? ')' : op == "[" ? ']' : '}';
    } else if (op == ")" || op == "]" || op == "}") {
      if (brackets_.empty()) fail(str("unexpected '", op, "'"));
      if (brackets_.back() != op[0])
        fail(str("unexpected '", op, "', expected '", brackets_.back(), "'"));
      brackets_.pop_back();
    }
    add(Kind::kOperator, std::string(op));
    advance(op.size());
    return;
  }
  size_t end = pos_;
  next_code_point(source_, end);
  fail(str("unexpected char '", source_.substr(pos_, end - pos_), "'"));
}

// Python's unicode-escape codec over the text with all beyond ASCII escaped first, as jinja2 does
// it.
std::string Lexer::unescape(std::string_view body) const {
  constexpr std::string_view plain = "\\'\"abfnrtv", meant = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (size_t i = 0; i < body.size();) {
    if (body[i] != '\\') {
      out += body[i++];
      continue;
    }
    ++i;  // the backslash; the lexer has seen to it that something follows
    const char c = body[i];
    if (const size_t found = plain.find(c); found != std::string_view::npos) {
      out += meant[found];
      ++i;
    } else if (c == '\n') {
      ++i;
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      for (int n = 0; n < 3 && i < body.size() && body[i] >= '0' && body[i] <= '7'; ++n) {
        code = code * 8 + static_cast<char32_t>(body[i++] - '0');
      }
      append_code_point(out, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t code = 0;
      for (size_t n = 1; n <= digits; ++n) {
        if (i + n >= body.size() || digit_value(body[i + n]) >= 16)
          fail(str("truncated \\", c, " escape"));
        code = code * 16 + static_cast<char32_t>(digit_value(body[i + n]));
      }
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        fail(str("illegal character in \\", c, " escape"));
      append_code_point(out, code);
      i += digits + 1;
    } else if (c == 'N') {
      fail("\\N escapes are not supported");
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      // jinja2 escapes this character before it reads the escapes, so the two backslashes make one.
      const char32_t code = next_code_point(body, i);
      char escaped[16];
      std::snprintf(escaped, sizeof escaped,
                    code < 0x100     ? "\\x%02x"
                    : code < 0x10000 ? "\\u%04x"
                                     : "\\U%08x",
                    static_cast<unsigned>(code));
      out += escaped;
    } else {
      out += '\\';
      out += c;
      ++i;
    }
  }
  return out;
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace temper::jinja
