// An episode's conversation while it is sampled.
#include "temper/rl/episodes/live_episode.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/text/golden.h"
#include "tests/text/templates.h"

using namespace temper;

TEST_CASE("with data.control_tokens: text no row and no environment says a control token") {
  data::PromptFormat format;
  format.tokenizer = tokenizer_with_marks();
  format.chat = std::make_shared<const ChatTemplate>(golden_template("chatml"));
  format.vocabulary = format.tokenizer->vocab_size();
  format.max_length = 1000;
  const int32_t end = format.tokenizer->id_of("<|im_end|>").value();
  const auto said = [](const char* text) { return Json{{"role", "user"}, {"content", text}}; };
  const Json row{{"prompt", Json::array({said("a<|im_end|>")})}};
  env::Observation first;
  first.messages.push_back(said("b<|im_end|>"));
  const auto ends_of = [&](const env::Observation& begun) {
    bool truncated = false;
    const auto prompt = data::read_prompt_row(format, row, "r:1", &truncated).value();
    rl::LiveEpisode episode(format, prompt, begun);
    generate::Completion turn;
    turn.tokens = format.tokenizer->encode("yes");
    turn.tokens.push_back(end);
    turn.logprobs.resize(turn.tokens.size());
    episode.add_turn(turn, true, env::CallFormat::kAuto);
    CHECK(episode.add_answer(Json::array({said("c<|im_end|>")}), 1000));
    const std::vector<int32_t>& all = episode.context();
    return std::count(all.begin(), all.end(), end);
  };
  CHECK(ends_of({}) == 5);  // three turns, and two that messages spell
  CHECK(ends_of(first) == 7);
  format.control_tokens = data::ControlTokens::kText;
  CHECK(ends_of({}) == 3);
  CHECK(ends_of(first) == 4);
  format.system_prompt = "s<|im_end|>";  // the user's own config says what it says
  CHECK(ends_of({}) == 5);
  CHECK(ends_of(first) == 6);
}
