#include "temper/serve/reasoning.h"

#include <algorithm>
#include <utility>

namespace temper::serve {
namespace {

constexpr ReasoningMarks kKnownMarks[] = {
    {"<seed:think>", "</seed:think>"}, {"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};
constexpr const char* kBlanks = " \t\r\n";

// The number of bytes at the text's end that may be the beginning of the mark.
size_t begun(std::string_view text, std::string_view mark) {
  size_t size = std::min(mark.size() - 1, text.size());
  while (size > 0 && !text.ends_with(mark.substr(0, size))) --size;
  return size;
}

size_t without_blanks_behind(std::string_view text) {
  const size_t last = text.find_last_not_of(kBlanks);
  return last == std::string_view::npos ? 0 : last + 1;
}

}  // namespace

ReasoningMarks reasoning_marks(std::string_view source) {
  for (const ReasoningMarks& marks : kKnownMarks)
    if (source.find(marks.end) != std::string_view::npos) return marks;
  return {};
}

bool is_within_reasoning(const ReasoningMarks& marks, std::string_view text) {
  if (!marks) return false;
  const size_t begin = text.rfind(marks.begin), end = text.rfind(marks.end);
  return begin != std::string_view::npos && (end == std::string_view::npos || end < begin);
}

ReasoningSplitter::Parts ReasoningSplitter::next(std::string_view text, bool last) {
  Parts out;
  held_ += text;
  while (step(out, last)) {
  }
  return out;
}

// Returns true where the state has changed.
bool ReasoningSplitter::step(Parts& out, bool last) {
  const size_t first = held_.find_first_not_of(kBlanks);
  switch (state_) {
    case kStart: {
      if (first == std::string::npos) {
        if (last) out.answer += std::exchange(held_, {});
        return false;
      }
      const std::string_view said = std::string_view(held_).substr(first);
      if (said.starts_with(marks_.begin)) {
        held_.erase(0, first + marks_.begin.size());
        state_ = kReasoning;
        return true;
      }
      if (!last && marks_.begin.starts_with(said)) return false;
      state_ = kAnswer;
      return true;
    }
    case kReasoning: {
      const size_t end = held_.find(marks_.end);
      const bool ends = end != std::string::npos;
      if (!said_) held_.erase(0, ends ? std::min(first, end) : std::min(first, held_.size()));
      const size_t at = ends ? held_.find(marks_.end) : held_.size();
      size_t shown = ends || last ? at : at - begun(held_, marks_.end);
      shown = without_blanks_behind(std::string_view(held_).substr(0, shown));
      said_ = said_ || shown > 0;
      out.reasoning += held_.substr(0, shown);
      held_.erase(0, ends ? at + marks_.end.size() : shown);
      if (!ends && last) held_.clear();
      if (ends) state_ = kBeforeAnswer;
      return ends;
    }
    case kBeforeAnswer:
      held_.erase(0, std::min(first, held_.size()));
      if (held_.empty()) return false;
      state_ = kAnswer;
      return true;
    case kAnswer:
      out.answer += std::exchange(held_, {});
      return false;
  }
  return false;
}

}  // namespace temper::serve
