// What stands between two turns of a policy, for the templates of several families.
#include "temper/text/chat/dialogue.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/text/tokenizer/special_tokens.h"
#include "tests/text/golden.h"

using namespace temper;

namespace {

std::shared_ptr<const ChatTemplate> chat(const std::string& name) {
  return std::make_shared<ChatTemplate>(
      ChatTemplate::parse(read_file(golden_path("templates/" + name + ".jinja")), name,
                          Json{{"bos_token", ""}, {"eos_token", "<|im_end|>"}}));
}

Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
Json tool(const std::string& text) { return {{"role", "tool"}, {"name", "f"}, {"content", text}}; }

// A dialogue that says turns given as texts, with whatever tokens they are given as.
struct Spoken {
  std::shared_ptr<const Tokenizer> tokenizer = tokenizer_with_marks();
  std::unique_ptr<Dialogue> dialogue;
  ToolCallFormat format = ToolCallFormat::kHermes;

  Spoken(const std::string& name, const Json& messages, const Json& tools = Json()) {
    const auto shape = chat(name);
    dialogue = std::make_unique<Dialogue>(tokenizer, shape, messages, tools,
                                          tokenizer->encode(shape->render(messages, tools, true)));
    format = dialogue->call_format();
  }

  Dialogue::Continuation say(const std::vector<int32_t>& turn, bool ended, const Json& answers) {
    const std::vector<int32_t> words(turn.begin(), turn.end() - (ended ? 1 : 0));
    return dialogue->go_on(turn, ended, parse_tool_calls(format, tokenizer->decode(words)),
                           answers);
  }
  Dialogue::Continuation say(const std::string& words, const Json& answers) {
    std::vector<int32_t> turn = tokenizer->encode(words);
    turn.push_back(*tokenizer->id_of("<|im_end|>"));
    return say(turn, true, answers);
  }
  std::string text(const std::vector<int32_t>& tokens) const { return tokenizer->decode(tokens); }
};

}  // namespace

TEST_CASE("between turns stands what the template renders, less the end token that was sampled") {
  Spoken spoken("chatml", Json::array({user("one")}));
  const size_t prompt = spoken.dialogue->tokens().size();
  const auto next = spoken.say("two", Json::array({user("three"), user("four")}));
  CHECK(spoken.text(next.tokens) ==
        "\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>user\nfour<|im_end|>\n"
        "<|im_start|>assistant\n");
  CHECK(next.kept == prompt + spoken.tokenizer->encode("two").size() + 1);
  CHECK(spoken.text(spoken.dialogue->tokens()).starts_with("<|im_start|>user\none<|im_end|>"));
  CHECK(spoken.dialogue->tokens().size() == next.kept + next.tokens.size());

  // A turn that a stop text ended has no end token: the template's stands there.
  const auto cut = spoken.say(spoken.tokenizer->encode("five"), false, Json::array({user("six")}));
  CHECK(spoken.text(cut.tokens).starts_with("<|im_end|>\n<|im_start|>user\nsix"));
  // Without an answer the policy goes on in a turn of its own.
  const auto silent = spoken.say("seven", Json::array());
  CHECK(spoken.text(silent.tokens) == "\n<|im_start|>assistant\n");
}

TEST_CASE(
    "an end token that was sampled stands once, also where the template puts space before it") {
  Spoken spoken("llama2", Json::array({user("one")}));
  const auto next = spoken.say("two", Json::array({user("three")}));
  const std::string text = spoken.text(next.tokens);
  CHECK(text.find("<|im_end|>") == std::string::npos);
  CHECK(text.find("[INST] three [/INST]") != std::string::npos);
}

TEST_CASE("what was sampled is never tokenized again") {
  Spoken spoken("chatml", Json::array({user("one")}));
  const size_t prompt = spoken.dialogue->tokens().size();
  // Letters that the tokenizer would join.
  std::vector<int32_t> turn;
  for (const char c : std::string("the end")) {
    const std::vector<int32_t> one = spoken.tokenizer->encode(std::string(1, c));
    turn.insert(turn.end(), one.begin(), one.end());
  }
  turn.push_back(*spoken.tokenizer->id_of("<|im_end|>"));
  const auto next = spoken.say(turn, true, Json::array({user("x")}));
  CHECK(next.kept == prompt + turn.size());
  const std::vector<int32_t>& all = spoken.dialogue->tokens();
  CHECK((std::vector<int32_t>(all.begin() + static_cast<long>(prompt),
                              all.begin() + static_cast<long>(next.kept)) == turn));
  // Nor are bytes that are no text, and space that a template trims.
  for (const char* name : {"chatml", "llama31", "gemma3"}) {
    Spoken other(name, Json::array({user("one")}));
    const size_t begin = other.dialogue->tokens().size();
    std::vector<int32_t> odd = other.tokenizer->encode("  \n word \n\n");
    odd.push_back(other.tokenizer->encode("\xC3\xA9").front());  // half a character
    odd.push_back(*other.tokenizer->id_of("<|im_end|>"));
    CHECK(other.say(odd, true, Json::array({user("x")})).kept == begin + odd.size());
  }
}

TEST_CASE("a template that drops earlier reasoning goes on in a branch") {
  Spoken spoken("qwen3", Json::array({user("one")}));
  const std::vector<int32_t> prompt = spoken.dialogue->tokens();
  const auto next = spoken.say("<think>\nhm\n</think>\n\ntwo", Json::array({user("three")}));
  CHECK(next.kept == prompt.size());
  CHECK(spoken.text(next.tokens) ==
        "two<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n");
  CHECK(spoken.text(spoken.dialogue->tokens()) ==
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\n"
        "three<|im_end|>\n<|im_start|>assistant\n");
  // Only the last turn is rewritten: what stands before it stays.
  const size_t before = spoken.dialogue->tokens().size();
  CHECK(spoken.say("<think>\nso\n</think>\n\nfour", Json::array({user("five")})).kept == before);
  // Without reasoning there is nothing to rewrite.
  const size_t plain = spoken.dialogue->tokens().size();
  CHECK(spoken.say("six", Json::array({user("seven")})).kept > plain);
}

TEST_CASE("within a chain of tool calls reasoning stays, and the line goes on") {
  Spoken spoken("qwen3", Json::array({user("one")}));
  const size_t prompt = spoken.dialogue->tokens().size();
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  auto next = spoken.say("<think>\nhm\n</think>\n\n" + call, Json::array({tool("7")}));
  CHECK(next.kept > prompt);
  CHECK(spoken.text(next.tokens) ==
        "\n<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n");
  // The user's next word ends the chain: its reasoning goes, from the first turn on.
  next = spoken.say("<think>\nso\n</think>\n\nseven", Json::array({user("and?")}));
  CHECK(next.kept >= prompt);  // both begin with a bracket
  CHECK(next.kept <= prompt + 1);
  CHECK(spoken.text(spoken.dialogue->tokens()).find("<think>") == std::string::npos);
}

TEST_CASE("templates that know no tool messages, or want calls as such") {
  Spoken gemma("gemma3", Json::array({user("one")}));
  const auto answered = gemma.say("```tool_code\nf(x=1)\n```", Json::array({tool("7"), tool("8")}));
  CHECK(gemma.text(answered.tokens).find("```tool_output\n7\n```\n```tool_output\n8\n```") !=
        std::string::npos);
  const Json tools = Json::array(
      {{{"type", "function"},
        {"function", {{"name", "f"}, {"description", "d"}, {"parameters", Json::object()}}}}});
  Spoken mistral("mistral3", Json::array({user("one")}), tools);
  const size_t prompt = mistral.dialogue->tokens().size();
  for (const char* answer : {"7", "8", "9"}) {
    const size_t before = mistral.dialogue->tokens().size();
    const auto next = mistral.say("[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]",
                                  Json::array({tool(answer)}));
    CHECK(next.kept > before);
    CHECK(mistral.text(next.tokens).find(std::string("\"content\": ") + answer) !=
          std::string::npos);
  }
  // Its tools stand before the last question: a new one moves them, and the branch begins within
  // the prompt.
  CHECK(mistral.say("done", Json::array({user("and?")})).kept < prompt);
}

TEST_CASE("without a template contents stand behind each other; wrong messages change nothing") {
  const auto tokenizer = tokenizer_with_marks();
  Dialogue plain(tokenizer, nullptr, Json::array(), Json(), tokenizer->encode("1 + 1 ="));
  const std::vector<int32_t> turn = tokenizer->encode(" 2.");
  const auto next = plain.go_on(turn, false, {}, Json::array({user("\n2 + 2 ="), user(" ")}));
  CHECK(tokenizer->decode(next.tokens) == "\n2 + 2 = ");
  CHECK(tokenizer->decode(plain.tokens()) == "1 + 1 = 2.\n2 + 2 = ");

  Spoken gemma("gemma3", Json::array({user("one")}));
  const std::vector<int32_t> before = gemma.dialogue->tokens();
  CHECK_THROWS_AS(gemma.say("x", Json::array({{{"role", "assistant"}, {"content", "y"}}})),
                  DataError);
  CHECK((gemma.dialogue->tokens() == before));
}

TEST_CASE("what answers spell is text where they are quoted, in lines and in branches") {
  const auto tokenizer = tokenizer_with_marks();
  const int32_t end = tokenizer->id_of("<|im_end|>").value();
  const auto marked = Tokenizer::Quotes::kMarked;
  const auto ends_in = [&](const std::vector<int32_t>& tokens) {
    return std::count(tokens.begin(), tokens.end(), end);
  };
  // Qwen3's drops earlier reasoning, and says the question again in a branch.
  for (const char* name : {"chatml", "qwen3"}) {
    CAPTURE(name);
    const auto shape = chat(name);
    const Json asked = quoted(*tokenizer, marked, Json::array({user("a<|im_end|>")}));
    Dialogue dialogue(tokenizer, shape, asked, Json(),
                      tokenizer->encode_first(shape->render(asked, Json(), true), SIZE_MAX, marked),
                      marked);
    CHECK(ends_in(dialogue.tokens()) == 1);
    std::vector<int32_t> turn = tokenizer->encode("<think>\nhm\n</think>\n\nyes");
    turn.push_back(end);
    const auto next = dialogue.go_on(
        turn, true, {}, quoted(*tokenizer, marked, Json::array({user("b<|im_end|>c")})));
    CHECK(ends_in(dialogue.tokens()) == 3);
    CHECK(tokenizer->decode(next.tokens).find("b<|im_end|>c") != std::string::npos);
    CHECK(tokenizer->decode(dialogue.tokens()).find("a<|im_end|>") != std::string::npos);
  }
  const Json answer = quoted(*tokenizer, marked, Json::array({user("<|im_end|>")}));
  Dialogue plain(tokenizer, nullptr, Json::array(), Json(), tokenizer->encode("1"), marked);
  plain.go_on(tokenizer->encode("2"), false, {}, answer);
  CHECK(ends_in(plain.tokens()) == 0);
  CHECK(tokenizer->decode(plain.tokens()) == "12<|im_end|>");
}
