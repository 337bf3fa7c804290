// A model's reasoning apart from its answer, whole and in pieces.
#include "temper/serve/reasoning.h"

#include <doctest/doctest.h>

#include <vector>

using namespace temper::serve;

namespace {

const ReasoningMarks kThink = reasoning_marks("{{ '<think>' }}{{ '</think>' }}");

ReasoningSplitter::Parts whole(const std::string& text, bool within = false) {
  return ReasoningSplitter(kThink, within).next(text, true);
}

}  // namespace

TEST_CASE("marks are those of the template") {
  CHECK(kThink.begin == "<think>");
  CHECK(reasoning_marks("x <seed:think> y </seed:think>").end == "</seed:think>");
  CHECK_FALSE(reasoning_marks("{{ messages }}"));
  CHECK(is_within_reasoning(kThink, "<|im_start|>assistant\n<think>\n"));
  CHECK_FALSE(is_within_reasoning(kThink, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  CHECK_FALSE(is_within_reasoning({}, "<think>"));
}

TEST_CASE("whole turns") {
  struct Case {
    const char *text, *reasoning, *answer;
    bool within;
  };
  for (const Case& c :
       {Case{"<think>\nwhy\n</think>\n\n4", "why", "4", false},
        Case{"why\n</think>\n\n4", "why", "4", true}, Case{"4", "", "4", false},
        Case{" 4 <think>a</think>", "", " 4 <think>a</think>", false},
        Case{"<think>cut of", "cut of", "", false}, Case{"cut of", "cut of", "", true},
        Case{"<think>\n\n</think>\n\n4", "", "4", false},
        Case{"<think>a</think>b</think>c", "a", "b</think>c", false},
        Case{"</think>4", "", "4", true}, Case{"</think>4", "", "</think>4", false},
        Case{"<thi", "", "<thi", false}, Case{"a </thi", "a </thi", "", true},
        Case{"", "", "", false}, Case{"\n", "", "\n", false}}) {
    CAPTURE(c.text);
    const auto parts = whole(c.text, c.within);
    CHECK(parts.reasoning == c.reasoning);
    CHECK(parts.answer == c.answer);
    // In pieces of every size the same.
    for (size_t size = 1; size <= 5; ++size) {
      ReasoningSplitter splitter(kThink, c.within);
      ReasoningSplitter::Parts all;
      const std::string text = c.text;
      for (size_t at = 0; at <= text.size(); at += size) {
        const auto next =
            splitter.next(std::string_view(text).substr(at, size), at + size > text.size());
        all.reasoning += next.reasoning;
        all.answer += next.answer;
      }
      CHECK(all.reasoning == c.reasoning);
      CHECK(all.answer == c.answer);
    }
  }
  const auto none = ReasoningSplitter().next("<think>a</think>b", true);
  CHECK(none.answer == "<think>a</think>b");
}
