// Separates a model's reasoning from its answer.
#pragma once

#include <string>
#include <string_view>

namespace temper::serve {

// The marks around the reasoning at the beginning of a turn; empty: the model has none.
struct ReasoningMarks {
  std::string_view begin, end;
  explicit operator bool() const { return !begin.empty(); }
};

// The marks that a chat template's source mentions.
ReasoningMarks reasoning_marks(std::string_view template_source);
// True where a prompt that ends with `text` has begun the reasoning, as some templates do.
bool is_within_reasoning(const ReasoningMarks& marks, std::string_view text);

// Splits the text of a turn as it arrives. Text that may be the beginning of a mark is held back,
// and white space around the two parts is dropped.
class ReasoningSplitter {
 public:
  ReasoningSplitter() = default;
  ReasoningSplitter(const ReasoningMarks& marks, bool within)
      : marks_(marks),
        state_(!marks   ? kAnswer
               : within ? kReasoning
                        : kStart) {}

  struct Parts {
    std::string reasoning, answer;
  };
  // last: nothing follows.
  Parts next(std::string_view text, bool last);

 private:
  enum State { kStart, kReasoning, kBeforeAnswer, kAnswer };
  bool step(Parts& out, bool last);

  ReasoningMarks marks_;
  State state_ = kAnswer;
  bool said_ = false;  // some of the reasoning was given
  std::string held_;
};

}  // namespace temper::serve
