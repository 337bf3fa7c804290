#include "temper/rewards/spelling.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "temper/rewards/answer.h"

namespace temper::rewards {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

bool is_digit_at(std::string_view text, size_t at) {
  return at < text.size() && is_digit(text[at]);
}
bool is_letter_at(std::string_view text, size_t at) {
  return at < text.size() && is_letter(text[at]);
}
// Commands by their names, with their spelling.
constexpr auto kCommands = std::to_array<Pair>({
    {"left", ""},
    {"right", ""},
    {"big", ""},
    {"Big", ""},
    {"bigl", ""},
    {"bigr", ""},
    {"Bigl", ""},
    {"Bigr", ""},
    {"displaystyle", ""},
    {"textstyle", ""},
    {"quad", " "},
    {"qquad", " "},
    {"dfrac", "\\frac"},
    {"tfrac", "\\frac"},
    {"cfrac", "\\frac"},
    {"dbinom", "\\binom"},
    {"tbinom", "\\binom"},
    {"cdot", "*"},
    {"times", "*"},
    {"ast", "*"},
    {"div", "/"},
    {"mathbf", ""},
    {"mathit", ""},
    {"boldsymbol", ""},
    {"bm", ""},
    {"boxed", ""},
    {"fbox", ""},
    {"underline", ""},
    {"mathrm", "\\text"},
    {"textrm", "\\text"},
    {"textbf", "\\text"},
    {"textit", "\\text"},
    {"textup", "\\text"},
    {"mbox", "\\text"},
    {"hbox", "\\text"},
    {"operatorname", "\\text"},
    {"textnormal", "\\text"},
    {"leq", "\\le"},
    {"leqslant", "\\le"},
    {"geq", "\\ge"},
    {"geqslant", "\\ge"},
    {"neq", "\\ne"},
    {"lt", "<"},
    {"gt", ">"},
    {"degree", "\x01"},
    {"varnothing", "\\emptyset"},
    {"lbrace", "\\{"},
    {"rbrace", "\\}"},
    {"bar", "\\overline"},
    {"cup", kUnion},
    {"vert", "|"},
    {"lvert", "|"},
    {"rvert", "|"},
    {"mid", "|"},
});

// Other spellings, first match first.
constexpr auto kSigns = std::to_array<Pair>({
    {"^{\\circ}", "\x01"},
    {"^\\circ", "\x01"},
    {"°", "\x01"},
    {"\\!,\\!", "{,}"},
    {",\\!", "{,}"},
    {"\\!", ""},
    {"\\;", " "},
    {"\\:", " "},
    {"\\ ", " "},
    {"~", " "},
    {"\\%", "%"},
    {"\\$", ""},
    {"$", ""},
    {"\\(", ""},
    {"\\)", ""},
    {"**", "^"},
    {"−", "-"},
    {"×", "*"},
    {"·", "*"},
    {"÷", "/"},
    {"π", "\\pi "},
    {"∞", "\\infty "},
    {"√", "\\sqrt "},
    {"±", "\\pm "},
    {"∪", kUnion},
    {"∅", "\\emptyset "},
    {"≤", "\\le "},
    {"≥", "\\ge "},
    {"≠", "\\ne "},
    {"≈", "\\approx "},
    {"<=", "\\le "},
    {">=", "\\ge "},
    {"!=", "\\ne "},
    {"\"", ""},
    {"\t", " "},
    {"\r", " "},
    {"\n", " "},
});

// Words of plain text that stand for a command or sign.
constexpr auto kPlainWords = std::to_array<Pair>({
    {"pi", "\\pi "},
    {"sqrt", "\\sqrt "},
    {"infinity", "\\infty "},
    {"inf", "\\infty "},
    {"percent", "%"},
    {"percentage", "%"},
});

void replace_signs(std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    // \\ is the end of a matrix's row, whatever follows.
    if (rest.starts_with("\\\\")) {
      out += "\\\\";
      at += 2;
      continue;
    }
    const auto sign = std::find_if(kSigns.begin(), kSigns.end(),
                                   [&](const Pair& p) { return rest.starts_with(p.first); });
    if (sign == kSigns.end()) {
      out += text[at++];
      continue;
    }
    out += sign->second;
    at += sign->first.size();
  }
  text = std::move(out);
}

void replace_commands(std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || !is_letter_at(text, at + 1)) {
      const size_t step = text[at] == '\\' && at + 1 < text.size() ? 2 : 1;
      out.append(text, at, step);
      at += step;
      continue;
    }
    size_t end = at + 1;
    while (is_letter_at(text, end)) ++end;
    const std::string_view name = std::string_view(text).substr(at + 1, end - at - 1);
    const auto found = std::find_if(kCommands.begin(), kCommands.end(),
                                    [&](const Pair& p) { return p.first == name; });
    if (found == kCommands.end())
      out.append(text, at, end - at);
    else
      out += found->second;
    at = end;
  }
  text = std::move(out);
}

// "and" and "or" are commas, also in \text{}.
std::string_view list_word(std::string_view word) {
  return word == "and" || word == "or" ? "," : "";
}
void add_comma(std::string& out) {
  const size_t last = out.find_last_not_of(' ');
  if (last == std::string::npos || out[last] != ',') out += ',';
}

// Whether arguments of a function stand there.
bool arguments_at(std::string_view text, size_t at) {
  at = std::min(text.find_first_not_of(' ', at), text.size());
  return text.substr(at).starts_with("(") || text.substr(at).starts_with("\\{");
}

void replace_words(std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (std::string_view(text).substr(at).starts_with("\\text{")) {
      const size_t end = end_of_braces(text, at + 5);
      if (end == std::string::npos) {
        out += text.substr(at);
        break;
      }
      const std::string_view content = std::string_view(text).substr(at + 6, end - at - 7);
      if (!list_word(trimmed(content)).empty())
        add_comma(out);
      else if (takes_list(trimmed(content)) && arguments_at(text, end))
        out += "\\" + std::string(trimmed(content)) + " ";
      else if (!trimmed(content).empty())
        out.append(text, at, end - at);
      at = end;
      continue;
    }
    size_t end = at;
    while (is_letter_at(text, end)) ++end;
    const std::string word = text.substr(at, end - at);
    const bool is_command = at > 0 && text[at - 1] == '\\';
    const auto found = std::find_if(kPlainWords.begin(), kPlainWords.end(),
                                    [&](const Pair& p) { return p.first == word; });
    if (end == at)
      out += text[end++];
    else if (!is_command && !list_word(word).empty())
      add_comma(out);
    else if (!is_command && takes_list(word) && arguments_at(text, end))
      out += "\\" + word + " ";
    else if (!is_command && found != kPlainWords.end())
      out += found->second;
    else
      out += word;
    at = end;
  }
  text = std::move(out);
}

// The number of digits from here on.
size_t digits_at(std::string_view text, size_t at) {
  size_t n = 0;
  while (is_digit_at(text, at + n)) ++n;
  return n;
}

// {,} and a thin space within a number; the comma of a number that is all of the answer.
void join_thousands(std::string& text) {
  for (const std::string_view mark : {"{,}", "\\,"})
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
      const bool within =
          at > 0 && is_digit_at(text, at - 1) && digits_at(text, at + mark.size()) == 3;
      text.replace(at, mark.size(), within ? "" : mark == "{,}" ? "," : " ");
    }
  const std::string_view all = trimmed(text);
  size_t at = !all.empty() && (all[0] == '-' || all[0] == '+') ? 1 : 0;
  const size_t first = digits_at(all, at);
  if (first == 0 || first > 3) return;
  at += first;
  size_t groups = 0;
  for (; at < all.size() && all[at] == ',' && digits_at(all, at + 1) == 3; at += 4) ++groups;
  // A list, "1,234,5", has more commas.
  if (groups > 0 && all.find(',', at) == std::string_view::npos) std::erase(text, ',');
}

// "\{ \}", and "{}" that is all of the answer.
void name_empty_sets(std::string& text) {
  if (trimmed(text) == "{}") text = "\\emptyset ";
  for (size_t at = text.find("\\{"); at != std::string::npos; at = text.find("\\{", at + 2)) {
    const size_t end = text.find_first_not_of(' ', at + 2);
    if (end != std::string::npos && text.compare(end, 2, "\\}") == 0)
      text.replace(at, end + 2 - at, "\\emptyset ");
  }
}

}  // namespace

bool takes_list(std::string_view name) {
  return name == "max" || name == "min" || name == "gcd" || name == "lcm";
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

size_t end_of_braces(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
      continue;
    }
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

std::string plain_spelling(std::string_view text) {
  std::string out(text);
  replace_signs(out);
  replace_commands(out);
  replace_words(out);
  join_thousands(out);
  name_empty_sets(out);
  std::string_view kept = trimmed(out);
  while (!kept.empty() && kept.back() == '.') kept = trimmed(kept.substr(0, kept.size() - 1));
  return std::string(kept);
}

std::string_view without_text_command(std::string_view text) {
  text = trimmed(text);
  for (const std::string_view command :
       {"\\text{", "\\textbf{", "\\mathrm{", "\\mbox{", "\\textrm{"}) {
    if (!text.starts_with(command)) continue;
    if (end_of_braces(text, command.size() - 1) != text.size()) return text;
    return trimmed(text.substr(command.size(), text.size() - command.size() - 1));
  }
  return text;
}

std::optional<std::string> words_of(std::string_view text) {
  const std::string_view content = without_text_command(text);
  const bool in_command = content.size() != trimmed(text).size();
  size_t longest = 0, run = 0;
  for (size_t i = 0; i < content.size(); ++i) {
    run = is_letter_at(content, i) ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  // Short runs of letters are variables; a command's name is no word.
  if (!in_command && (longest < 4 || content.find('\\') != std::string_view::npos)) return {};
  std::string out = lower_case(content);
  std::erase_if(out, [](char c) {
    return std::isspace(static_cast<unsigned char>(c)) ||
           std::string_view("${}()\"").find(c) != std::string_view::npos;
  });
  while (!out.empty() && out.back() == '.') out.pop_back();
  return out;
}

void BracketScan::skip(size_t bytes) {
  at_ += bytes;
  look();
}

void BracketScan::look() {
  opening_ = closing_ = {};
  size_ = 1;
  if (done()) return;
  const std::string_view rest = text_.substr(at_);
  const bool escaped = rest[0] == '\\';
  if (escaped && rest.size() > 1) size_ = 2;
  const std::string_view here = rest.substr(0, size_);
  if (here == "\\{" || here == "(" || here == "[" || here == "{") opening_ = here;
  if (here == "\\}" || here == ")" || here == "]" || here == "}") closing_ = here;
  depth_ += !opening_.empty();
  depth_ -= !closing_.empty();
}

std::vector<std::string_view> split_outside(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (BracketScan scan(text); !scan.done(); scan.next()) {
    if (scan.depth() != 0 || separators.find(text[scan.at()]) == std::string_view::npos) continue;
    parts.push_back(trimmed(text.substr(begin, scan.at() - begin)));
    begin = scan.at() + 1;
  }
  parts.push_back(trimmed(text.substr(std::min(begin, text.size()))));
  return parts;
}

}  // namespace temper::rewards
