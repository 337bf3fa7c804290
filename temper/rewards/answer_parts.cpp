#include "temper/rewards/answer_parts.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "temper/rewards/answer.h"
#include "temper/rewards/spelling.h"

namespace temper::rewards {

std::optional<Bracketed> bracketed(std::string_view text) {
  BracketScan scan(text);
  const std::string_view open = scan.opening();
  if (open.empty()) return {};
  while (!scan.done() && scan.depth() > 0) scan.next();
  if (scan.done() || scan.at() + scan.closing().size() != text.size()) return {};
  return Bracketed{std::string(open) + std::string(scan.closing()),
                   split_outside(text.substr(open.size(), scan.at() - open.size()), ",;")};
}

bool is_mere_group(const Bracketed& b) {
  if (b.kind == "\\{\\}" && b.parts[0] == "\\emptyset") return false;
  return b.parts.size() == 1 && (b.kind == "()" || b.kind == "{}" || b.kind == "\\{\\}");
}

std::optional<std::string> both_signs(std::string_view text) {
  std::string upper(text), below(text);
  bool any = false;
  const auto replace = [](std::string& in, std::string_view what, char sign) {
    bool found = false;
    for (size_t at = in.find(what); at != std::string::npos; at = in.find(what, at)) {
      in.replace(at, what.size(), 1, sign);
      found = true;
    }
    return found;
  };
  any = replace(upper, "\\pm", '+') | replace(upper, "\\mp", '-');
  replace(below, "\\pm", '-');
  replace(below, "\\mp", '+');
  return any ? std::optional(upper + "," + below) : std::nullopt;
}

Relation relation_in(std::string_view text) {
  static constexpr auto kSigns =
      std::to_array<std::string_view>({"\\approx", "\\le", "\\ge", "\\ne", "\\in", "=", "<", ">"});
  Relation out;
  size_t begin = 0;
  for (BracketScan scan(text); !scan.done();) {
    const std::string_view rest = text.substr(scan.at());
    const auto sign = std::find_if(kSigns.begin(), kSigns.end(), [&](std::string_view s) {
      return rest.starts_with(s) &&  // \in is no \infty
             (s[0] != '\\' || s.size() == rest.size() || !is_letter(rest[s.size()]));
    });
    if (scan.depth() != 0 || sign == kSigns.end()) {
      scan.next();
      continue;
    }
    out.sides.push_back(trimmed(text.substr(begin, scan.at() - begin)));
    out.signs.emplace_back(*sign);
    scan.skip(sign->size());
    begin = scan.at();
  }
  out.sides.push_back(trimmed(text.substr(begin)));
  return out;
}

bool is_equation(const Relation& r) {
  return r.signs.size() == 1 && (r.signs[0] == "=" || r.signs[0] == "\\approx");
}

bool is_name(std::string_view text) {
  if (text.size() > 1 && text[0] == '\\')
    return std::all_of(text.begin() + 1, text.end(), [](char c) { return is_letter(c); });
  std::string letters;
  for (const char c : text)
    if (is_letter(c))
      letters += c;
    else if (c == '+' || c == '-' || c == '*' || c == '/' || c == '^')
      return false;
  if (text.empty() || letters.empty() || !is_letter(text[0]))
    return text.starts_with('(') && text.ends_with(')') && !letters.empty() &&
           text.find_first_of("0123456789") == text.npos;
  if (text.size() == 1 || text[1] == '_') return true;
  return text[1] == '(' && text.ends_with(')');  // f(x), P(3)
}

std::string turned(const std::string& sign) {
  return sign == "<"      ? ">"
         : sign == ">"    ? "<"
         : sign == "\\le" ? "\\ge"
         : sign == "\\ge" ? "\\le"
                          : sign;
}

std::optional<Matrix> matrix_in(std::string_view text) {
  constexpr std::string_view kBegin = "\\begin{", kEnd = "\\end{";
  if (!text.starts_with(kBegin)) return {};
  const size_t close = text.find('}');
  if (close == std::string_view::npos) return {};
  const std::string name(text.substr(kBegin.size(), close - kBegin.size()));
  const std::string end = std::string(kEnd) + name + "}";
  if (!name.ends_with("matrix") || !text.ends_with(end) || text.size() < close + 1 + end.size())
    return {};
  Matrix out{name == "vmatrix" || name == "Vmatrix" ? name : "matrix", {}};
  std::string_view body = text.substr(close + 1, text.size() - close - 1 - end.size());
  if (body.find(kBegin) != std::string_view::npos) return {};
  while (true) {
    const size_t at = body.find("\\\\");
    const std::string_view row = trimmed(body.substr(0, at));
    if (at != std::string_view::npos || !row.empty()) out.rows.push_back(split_outside(row, "&"));
    if (at == std::string_view::npos) return out;
    body.remove_prefix(at + 2);
  }
}

std::optional<Numeral> numeral(std::string_view text) {
  const size_t at = std::min(text.find('_'), text.size());
  Numeral out{std::string(trimmed(text.substr(0, at))), {}};
  const auto is_figure = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  if (out.digits.empty() || !std::all_of(out.digits.begin(), out.digits.end(), is_figure) ||
      !is_digit(out.digits[0]))
    return {};
  if (at == text.size()) return out;
  out.base = std::string(text.substr(at + 1));
  if (out.base.starts_with('{') && out.base.ends_with('}'))
    out.base = out.base.substr(1, out.base.size() - 2);
  if (out.base.empty() || !std::all_of(out.base.begin(), out.base.end(), is_digit)) return {};
  return out;
}

std::optional<std::string> written_out(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text = trimmed(text.substr(1));
  if (text.empty() || text.find_first_not_of("0123456789.") != text.npos ||
      std::count(text.begin(), text.end(), '.') > 1 || text == ".")
    return {};
  std::string digits(text.substr(std::min(text.find_first_not_of('0'), text.size())));
  if (digits.find('.') != std::string::npos) {
    while (digits.back() == '0') digits.pop_back();
    if (digits.back() == '.') digits.pop_back();
  }
  return digits.empty() ? "0" : (negative ? "-" : "") + digits;
}

}  // namespace temper::rewards
