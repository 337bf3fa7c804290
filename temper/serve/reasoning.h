// A model's reasoning apart from its answer.
#pragma once

#include <string>
#include <string_view>

namespace temper::serve {

// What stands around the reasoning at the beginning of a turn; empty: the model has none.
struct ReasoningMarks {
  std::string_view begin, end;
  explicit operator bool() const { return !begin.empty(); }
};

// From a chat template's source.
ReasoningMarks reasoning_marks(std::string_view template_source);
// Whether a prompt that ends with `text` has begun the reasoning, as the prompts of some templates
// do.
bool is_within_reasoning(const ReasoningMarks& marks, std::string_view text);

// Splits the text of a turn as it comes. What may be the beginning of a mark is held back, and so
// is space around the two parts.
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
