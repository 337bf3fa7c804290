#include "temper/text/tokenizer/pattern.h"

#include "temper/base/error.h"
#include "temper/text/unicode.h"

namespace temper {

Pattern Pattern::parse(const JsonField& field) {
  if (const auto literal = field.find("String")) {
    std::string text = literal->text();
    if (text.empty()) return Pattern(Regex("", literal->where()));
    return Pattern(std::move(text));
  }
  const auto regex = field.find("Regex");
  if (!regex) field.fail("{\"String\": ..} or {\"Regex\": ..} expected");
  return Pattern(Regex(regex->text(), regex->where()));
}

bool Matches::search(Regex::Match& match) const {
  if (const auto* regex = std::get_if<Regex>(&pattern_.what_))
    return regex->find(text_, from_, match);
  if (const auto* literal = std::get_if<std::string>(&pattern_.what_)) {
    const size_t at = text_.find(*literal, from_);
    if (at == text_.npos) return false;
    match = {at, at + literal->size()};
    return true;
  }
  const auto chars = std::get<Pattern::CharClass>(pattern_.what_);
  for (size_t i = from_; i < text_.size();) {
    const size_t at = i;
    if (chars(next_char(text_, i))) {
      match = {at, i};
      return true;
    }
  }
  return false;
}

bool Matches::next(Regex::Match& match) {
  if (text_.empty()) return false;
  while (from_ <= text_.size() && search(match)) {
    from_ = match.end;
    if (match.begin != match.end || last_end_ != match.end) {
      last_end_ = match.end;
      return true;
    }
    // Step over one character, or past the end.
    if (from_ == text_.size()) {
      ++from_;
    } else {
      next_char(text_, from_);
    }
  }
  return false;
}

std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content,
                        size_t most) {
  std::string out;
  out.reserve(text.size());
  Matches matches(pattern, text);
  size_t end = 0;
  for (Regex::Match match{}; matches.next(match); end = match.end) {
    out.append(text.substr(end, match.begin - end));
    check<DataError>(content.size() <= most && out.size() <= most - content.size(),
                     "tokenizer.json: a replacement makes more than ", most, " bytes of a text of ",
                     text.size());
    out.append(content);
  }
  out.append(text.substr(end));
  return out;
}

}  // namespace temper
