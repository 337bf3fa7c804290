#include "temper/text/tokenizer/normalizer.h"

#include "temper/base/error.h"

namespace temper {
namespace {

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    size_t i = 0;
    if (!is_white_space(next_char(text, i))) break;
    text.remove_prefix(i);
  }
  while (right && !text.empty()) {
    size_t end = text.size();
    if (!is_white_space(previous_char(text, end))) break;
    text = text.substr(0, end);
  }
  return text;
}

// Whether the result of replacing still begins where the text did: what is put in for several
// characters counts as standing at the last of them.
bool begins_as_before(const Pattern& pattern, std::string_view text, std::string_view content) {
  Regex::Match match{};
  if (text.empty() || !Matches(pattern, text).next(match) || match.begin > 0 || match.end == 0)
    return true;
  size_t first_char = 0;
  next_char(text, first_char);
  return !content.empty() && match.end == first_char;
}

}  // namespace

void Normalizer::add(const JsonField& field) {
  const std::string type = field.type();
  if (type == "Sequence") {
    for (const JsonField& item : field["normalizers"].items()) add(item);
  } else if (type == "NFC") {
    steps_.push_back(Form{NormalForm::kNfc});
  } else if (type == "NFD") {
    steps_.push_back(Form{NormalForm::kNfd});
  } else if (type == "NFKC") {
    steps_.push_back(Form{NormalForm::kNfkc});
  } else if (type == "NFKD") {
    steps_.push_back(Form{NormalForm::kNfkd});
  } else if (type == "Lowercase") {
    steps_.push_back(Lowercase{});
  } else if (type == "Strip") {
    steps_.push_back(Strip{field["strip_left"].flag(), field["strip_right"].flag()});
  } else if (type == "Prepend") {
    steps_.push_back(Prepend{field["prepend"].text()});
  } else if (type == "Replace") {
    steps_.push_back(Replace{Pattern::parse(field["pattern"]), field["content"].text()});
  } else {
    field.unsupported("normalizer");
  }
}

std::string Normalizer::apply_step(const Step& step, std::string_view text, bool& at_start,
                                   size_t most) {
  if (const auto* form = std::get_if<Form>(&step)) return normalize(text, form->form);
  if (std::holds_alternative<Lowercase>(step)) return lowercase(text);
  if (const auto* ends = std::get_if<Strip>(&step)) {
    const std::string_view kept = strip(text, ends->left, ends->right);
    if (kept.data() != text.data()) at_start = false;
    return std::string(kept);
  }
  if (const auto* prepend = std::get_if<Prepend>(&step))
    return text.empty() ? std::string() : prepend->text + std::string(text);
  const auto& replace = std::get<Replace>(step);
  if (at_start) at_start = begins_as_before(replace.pattern, text, replace.content);
  return replace_all(replace.pattern, text, replace.content, most);
}

std::string Normalizer::apply(std::string_view text, bool& at_start) const {
  // A normal form makes at most 18 characters of one (Unicode's stream-safe bound).
  constexpr size_t kGrowth = 32, kSlack = size_t{1} << 20;
  const size_t most = kSlack + kGrowth * text.size();
  if (steps_.empty()) return std::string(text);
  std::string out = apply_step(steps_[0], text, at_start, most);
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (i > 0) out = apply_step(steps_[i], out, at_start, most);
    check<DataError>(out.size() <= most, "tokenizer.json: the normalizer makes ", out.size(),
                     " bytes of a text of ", text.size(), ", expected at most ", most);
  }
  return out;
}

}  // namespace temper
