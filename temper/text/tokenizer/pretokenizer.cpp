#include "temper/text/tokenizer/pretokenizer.h"

#include "temper/base/error.h"
#include "temper/text/tokenizer/byte_level.h"
#include "temper/text/unicode.h"

namespace temper {
namespace {

constexpr size_t kMaxPreTokenizers = 64;
constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Runs of word characters and runs of what is neither word nor space.
void split_words(Pretokenizer::Piece piece, const Pretokenizer::Sink& sink) {
  enum Kind { kSpace, kWord, kOther };
  size_t start = 0;
  Kind kind = kSpace;
  const auto flush = [&](size_t end) {
    if (kind != kSpace && start < end)
      sink({piece.text.substr(start, end - start), piece.at_start && start == 0});
  };
  for (size_t i = 0; i < piece.text.size();) {
    const size_t at = i;
    const char32_t c = next_char(piece.text, i);
    const Kind now = is_white_space(c) ? kSpace : is_word_char(c) ? kWord : kOther;
    if (now == kind) continue;
    flush(at);
    kind = now;
    start = at;
  }
  flush(piece.text.size());
}

}  // namespace

Pretokenizer::Behavior Pretokenizer::parse_behavior(const JsonField& field) {
  const std::string name = field.text();
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  field.fail(str("\"", name,
                 "\" is not a behavior; Removed, Isolated, MergedWithPrevious, "
                 "MergedWithNext or Contiguous expected"));
}

Pretokenizer::Metaspace Pretokenizer::parse_metaspace(const JsonField& field) {
  Metaspace step{{}, PrependScheme::kAlways, field.flag_or("split", true)};
  append_char(step.replacement, field["replacement"].character());
  if (const auto scheme = field.find("prepend_scheme")) {
    const std::string name = scheme->text();
    if (name == "first") {
      step.prepend = PrependScheme::kFirst;
    } else if (name == "never") {
      step.prepend = PrependScheme::kNever;
    } else if (name != "always") {
      scheme->fail(str("\"", name, "\": always, first or never expected"));
    }
  }
  // Files from before prepend_scheme existed have add_prefix_space.
  if (!field.flag_or("add_prefix_space", true)) step.prepend = PrependScheme::kNever;
  return step;
}

void Pretokenizer::add(const JsonField& field) {
  if (steps_.size() >= kMaxPreTokenizers)
    field.fail(str("more than ", kMaxPreTokenizers, " pre-tokenizers"));
  const std::string type = field.type();
  if (type == "Sequence") {
    for (const JsonField& item : field["pretokenizers"].items()) add(item);
  } else if (type == "Split") {
    steps_.push_back(Split{Pattern::parse(field["pattern"]), parse_behavior(field["behavior"]),
                           field["invert"].flag()});
  } else if (type == "ByteLevel") {
    ByteLevel step{field.flag_or("add_prefix_space", true), std::nullopt};
    if (field.flag_or("use_regex", true)) step.words = Pattern(Regex(kGpt2Words, field.where()));
    steps_.push_back(std::move(step));
  } else if (type == "Metaspace") {
    steps_.push_back(parse_metaspace(field));
  } else if (type == "Digits") {
    const bool each = field.flag_or("individual_digits", false);
    steps_.push_back(
        Split{Pattern(is_numeric), each ? Behavior::kIsolated : Behavior::kContiguous, false});
  } else if (type == "Punctuation") {
    const auto behavior = field.find("behavior");
    steps_.push_back(Split{Pattern(is_punctuation),
                           behavior ? parse_behavior(*behavior) : Behavior::kIsolated, false});
  } else if (type == "Whitespace") {
    steps_.push_back(Whitespace{});
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(Split{Pattern(is_white_space), Behavior::kRemoved, false});
  } else {
    field.unsupported("pre_tokenizer");
  }
}

Pretokenizer::Pretokenizer(const JsonField& field) {
  add(field);
  gives_bytes_ = !steps_.empty() && std::holds_alternative<ByteLevel>(steps_.back());
}

void Pretokenizer::split(const Pattern& pattern, Behavior behavior, bool invert, Piece piece,
                         const Sink& sink) {
  const std::string_view text = piece.text;
  const auto emit = [&](Regex::Match range) {
    if (range.begin < range.end)
      sink({text.substr(range.begin, range.end - range.begin), piece.at_start && range.begin == 0});
  };
  // The text as alternating ranges that do or do not match; some behaviors hold one back until they
  // see the next.
  std::optional<Regex::Match> held;
  bool previous_matched = false;
  const auto range = [&](size_t begin, size_t end, bool matched) {
    matched = matched != invert;
    switch (behavior) {
      case Behavior::kRemoved:
        if (!matched) emit({begin, end});
        return;
      case Behavior::kIsolated:
        return emit({begin, end});
      case Behavior::kMergedWithNext:
        if (held && !matched) {
          emit({held->begin, end});
          held.reset();
        } else {
          if (held) emit(*held);
          held.reset();
          if (matched) {
            held = {begin, end};
          } else {
            emit({begin, end});
          }
        }
        return;
      case Behavior::kMergedWithPrevious:
      case Behavior::kContiguous:
        if (held && (behavior == Behavior::kContiguous ? matched == previous_matched
                                                       : matched && !previous_matched)) {
          held->end = end;
        } else {
          if (held) emit(*held);
          held = {begin, end};
        }
        previous_matched = matched;
        return;
    }
  };
  Matches matches(pattern, text);
  size_t end = 0;
  for (Regex::Match match{}; matches.next(match); end = match.end) {
    if (end != match.begin) range(end, match.begin, false);
    range(match.begin, match.end, true);
  }
  if (end != text.size()) range(end, text.size(), false);
  if (held) emit(*held);
}

void Pretokenizer::run_byte_level(const ByteLevel& step, size_t next, Piece piece,
                                  const Sink& word) const {
  std::string prefixed;
  if (step.add_prefix_space && piece.text[0] != ' ') {
    prefixed.reserve(piece.text.size() + 1);
    prefixed.append(" ").append(piece.text);
    piece.text = prefixed;
  }
  // As the last step it leaves bytes for the model to look up; in front of others its alphabet is
  // spelled out.
  const bool last = next == steps_.size();
  const auto pass_on = [&](Piece part) {
    if (last) return word(part);
    const std::string spelled = to_byte_level(part.text);
    run_from(next, {spelled, part.at_start}, word);
  };
  if (step.words) {
    split(*step.words, Behavior::kIsolated, false, piece, pass_on);
  } else {
    pass_on(piece);
  }
}

void Pretokenizer::run_metaspace(const Metaspace& step, size_t next, Piece piece,
                                 const Sink& word) const {
  std::string text = replace_all(Pattern(std::string(" ")), piece.text, step.replacement);
  const bool prepend = step.prepend == PrependScheme::kAlways ||
                       (step.prepend == PrependScheme::kFirst && piece.at_start);
  if (prepend && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  const Piece whole{text, piece.at_start};
  if (!step.split) return run_from(next, whole, word);
  split(Pattern(step.replacement), Behavior::kMergedWithNext, false, whole,
        [&](Piece part) { run_from(next, part, word); });
}

void Pretokenizer::run_from(size_t step, Piece piece, const Sink& word) const {
  if (step == steps_.size()) return word(piece);
  const size_t next = step + 1;
  const auto pass_on = [&](Piece part) { run_from(next, part, word); };
  if (const auto* by_pattern = std::get_if<Split>(&steps_[step])) {
    split(by_pattern->pattern, by_pattern->behavior, by_pattern->invert, piece, pass_on);
  } else if (const auto* bytes = std::get_if<ByteLevel>(&steps_[step])) {
    run_byte_level(*bytes, next, piece, word);
  } else if (const auto* metaspace = std::get_if<Metaspace>(&steps_[step])) {
    run_metaspace(*metaspace, next, piece, word);
  } else {
    split_words(piece, pass_on);
  }
}

}  // namespace temper
