// Sessions: which earlier turn a request continues, the tokens that it reuses, branches, limits.
#include "temper/serve/sessions/session.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/images/image_format.h"
#include "temper/image/source.h"
#include "temper/serve/asked.h"
#include "temper/serve/sessions/sessions.h"
#include "tests/text/golden.h"

using namespace temper;
using namespace temper::serve;

namespace {

Json said_by(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}
Json asks(const std::string& text) { return said_by("user", text); }

// A session with a client that asks and a policy that says what it is told to.
struct Talk {
  explicit Talk(SessionRules rules = {}, const std::string& name = "chatml") {
    format.tokenizer = tokenizer_with_marks();
    format.vocabulary = 1 << 20;
    format.chat = std::make_shared<ChatTemplate>(
        ChatTemplate::parse(read_file(golden_path("templates/" + name + ".jinja")), name,
                            Json{{"bos_token", ""}, {"eos_token", "<|im_end|>"}}));
    end = *format.tokenizer->id_of("<|im_end|>");
    rules.ends = {end};
    session = std::make_unique<Session>("s", rules);
  }

  Session::Begun ask(const Json& messages, int64_t samples = 1, const Json& tools = Json()) {
    CompletionRequest request;
    request.chat = true;
    request.prompts = {messages};
    request.num_samples = samples;
    request.tools = tools;
    return session->begin(request, format, ToolCallFormat::kHermes, 7, 1 << 20, 0);
  }
  // Tokens that encode() would join.
  std::vector<int32_t> letters(const std::string& text) const {
    std::vector<int32_t> tokens;
    for (const char c : text) {
      const auto one = format.tokenizer->encode(std::string(1, c));
      tokens.insert(tokens.end(), one.begin(), one.end());
    }
    return tokens;
  }
  void say(int64_t turn, const std::string& text, const Json& calls = Json(),
           const std::string& weights = "initial") {
    generate::Completion said;
    said.tokens = letters(text);
    said.tokens.push_back(end);
    said.logprobs.assign(said.tokens.size(), -1);
    said.text = text;
    said.stopped = true;
    Json answer = said_by("assistant", text);
    if (!calls.is_null()) answer["tool_calls"] = calls;
    session->record(turn, std::move(said), answer, weights);
    session->end_request();
  }
  SessionTurn turn(int64_t number) const {
    return session->record().turns.at(static_cast<size_t>(number));
  }
  int status(const std::function<void()>& act) const {
    try {
      act();
    } catch (const Refusal& e) {
      return e.status;
    }
    return 200;
  }

  data::TextFormat format;
  int32_t end = 0;
  std::unique_ptr<Session> session;
};

// Three tokens an image, which the tokenizer knows by a text.
class ThreeMarks : public ImageProcessor {
 public:
  ThreeMarks() { tokens_ = {kMark, kMark, "", ""}; }
  ImageLayout layout(const ImageSize&) const override {
    ImageTile tile;
    tile.token_rows = 1;
    tile.token_columns = 3;
    return {.canvases = {}, .tiles = {tile}};
  }
  std::string expand(const ImageLayout&) const override {
    std::string marks;
    for (int i = 0; i < 3; ++i) marks.append(kMark);
    return marks;
  }
  static constexpr const char* kMark = "<|end|>";
};

void let_see(Talk& talk) {
  auto images = std::make_shared<data::ImageFormat>();
  images->processor = std::make_shared<const ThreeMarks>();
  images->token = talk.format.tokenizer->id_of(ThreeMarks::kMark).value();
  talk.format.images = std::move(images);
}

Json shows(const char* name) {
  const std::string uri = data_uri(read_file(golden_path("images/files/") + name));
  return {{"role", "user"},
          {"content",
           {{{"type", "image_url"}, {"image_url", {{"url", uri}}}},
            {{"type", "text"}, {"text", "look"}}}}};
}

}  // namespace

TEST_CASE("images of messages stand in the context, and tell conversations apart") {
  Talk talk;
  const Json one = Json::array({shows("grey.png")}), other = Json::array({shows("rgb.png")});
  CHECK_THROWS_AS(talk.ask(one), DataError);  // a model that sees none
  let_see(talk);
  const auto begun = talk.ask(one);
  REQUIRE(begun.asked.rows.size() == 1);
  talk.say(begun.turn, "yes");
  talk.say(talk.ask(Json::array({one[0], said_by("assistant", "yes"), other[0]})).turn, "no");
  const SessionTurn first = talk.turn(0), second = talk.turn(1);
  CHECK(second.parent == 0);
  REQUIRE(second.images.size() == 2);
  CHECK(second.images[0].begin == first.images.at(0).begin);
  CHECK(second.images[0].image == first.images[0].image);  // it is kept once
  CHECK(second.images[1].begin >= static_cast<int64_t>(second.kept));
  for (const ImageSpan& span : second.images)
    for (int64_t i = 0; i < span.count; ++i)
      CHECK(second.context.at(static_cast<size_t>(span.begin + i)) == talk.format.images->token);
  // The same tokens, and another picture: another conversation, asked for the first time.
  talk.say(talk.ask(other).turn, "yes");
  CHECK(talk.turn(2).parent == -1);
  CHECK(talk.turn(2).context == first.context);
  CHECK(talk.turn(2).attempt == 0);
  talk.ask(Json::array({other[0], said_by("assistant", "yes"), other[0]}));
  CHECK(talk.turn(3).parent == 2);
  talk.ask(one);
  CHECK(talk.turn(4).attempt == 1);
}

TEST_CASE("a session's images count towards its memory and its random numbers") {
  const Json picture = Json::array({shows("grey.png")});
  Talk small({.most_tokens = 64});
  let_see(small);
  CHECK(small.status([&] { small.ask(Json::array({asks("one")})); }) == 200);
  CHECK(small.status([&] { small.ask(picture); }) == 403);
  SessionRules rules;
  rules.options.emplace();
  Talk seeded(rules);
  let_see(seeded);
  const auto seed = [&](const char* name) {
    return seeded.ask(Json::array({shows(name)})).asked.options.sampling.seed;
  };
  CHECK(seed("grey.png") != seed("rgb.png"));
}

TEST_CASE("parts of text reach a template that reads them, and continue what was said as text") {
  const auto parts = [](const char* role, std::vector<std::string> texts) {
    Json content = Json::array();
    for (const std::string& text : texts) content.push_back({{"type", "text"}, {"text", text}});
    return Json{{"role", role}, {"content", content}};
  };
  const Json asked = parts("user", {"What is", " 2+2?"});
  for (const bool reads : {false, true}) {
    CAPTURE(reads);
    Talk talk({}, reads ? "gemma4" : "chatml");
    CompletionRequest request;
    request.chat = true;
    request.prompts = {Json::array({asked})};
    const std::string written = reads ? "What is2+2?" : "What is 2+2?";
    const std::vector<int32_t> tokens = tokens_of(talk.format, request, request.prompts[0]);
    CHECK(talk.format.tokenizer->decode(tokens).find(written) != std::string::npos);
    const auto begun = talk.ask(Json::array({asked}));
    CHECK(begun.asked.prompt == tokens);
    if (reads) continue;
    talk.say(begun.turn, "hello there");
    talk.ask(Json::array({asked, parts("assistant", {"hello ", "there"}), asks("two")}));
    CHECK(talk.turn(1).parent == 0);
    CHECK(talk.turn(1).kept > 0);
  }
}

TEST_CASE("a request that continues an answer begins with the tokens that were sampled") {
  Talk talk;
  const Json first = Json::array({asks("one")});
  const auto begun = talk.ask(first);
  CHECK(begun.asked.prompt ==
        talk.format.tokenizer->encode(talk.format.chat->render(first, Json(), true)));
  talk.say(begun.turn, "hello there");
  REQUIRE(talk.format.tokenizer->encode("hello there") != talk.letters("hello there"));
  // With fields that clients add, and space that they leave out.
  Json answer = said_by("assistant", "hello there ");
  answer["refusal"] = nullptr;
  const auto next = talk.ask(Json::array({asks("one"), answer, asks("two")}));
  const SessionTurn before = talk.turn(0), after = talk.turn(1);
  std::vector<int32_t> kept = before.context;
  kept.insert(kept.end(), before.said.tokens.begin(), before.said.tokens.end());
  CHECK(after.parent == 0);
  CHECK(after.kept == kept.size());
  CHECK(std::equal(kept.begin(), kept.end(), next.asked.prompt.begin()));
  CHECK(talk.format.tokenizer->decode(
            {next.asked.prompt.begin() + std::ssize(kept), next.asked.prompt.end()}) ==
        "\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n");
  CHECK(after.position == std::ssize(next.asked.prompt) - std::ssize(before.context));
}

TEST_CASE("retries, samples and branches are turns beside each other") {
  Talk talk;
  const Json first = Json::array({asks("one")});
  talk.say(talk.ask(first).turn, "a");
  talk.say(talk.ask(first).turn, "b");
  CHECK(talk.turn(1).parent == -1);
  CHECK(talk.turn(1).attempt == 1);
  const auto two = talk.ask(Json::array({asks("one"), said_by("assistant", "b"), asks("x")}), 2);
  talk.say(two.turn, "c");
  talk.say(two.turn + 1, "d");
  CHECK(talk.turn(2).parent == 1);
  CHECK(talk.turn(3).parent == 1);
  CHECK(talk.turn(3).choice == 1);
  // An answer that nobody gave: a conversation of its own.
  talk.ask(Json::array({asks("one"), said_by("assistant", "z"), asks("x")}));
  CHECK(talk.turn(4).parent == -1);
  // Other tools: another prompt.
  const Json tools = Json::array(
      {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", Json::object()}}}}});
  talk.ask(Json::array({asks("one"), said_by("assistant", "b"), asks("x")}), 1, tools);
  CHECK(talk.turn(5).parent == -1);
}

TEST_CASE("an answer with calls is known by their names and arguments") {
  Talk talk;
  const Json tools = Json::array(
      {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", Json::object()}}}}});
  const Json first = Json::array({asks("one")});
  const std::string text =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  generate::Completion said;
  const auto begun = talk.ask(first, 1, tools);
  said.tokens = talk.letters(text);
  said.tokens.push_back(talk.end);
  said.logprobs.assign(said.tokens.size(), -1);
  said.stopped = true;
  const auto call = [](int x, const char* id) {
    return Json{{"id", id}, {"function", {{"name", "f"}, {"arguments", {{"x", x}}}}}};
  };
  Json answer = said_by("assistant", "");
  answer["tool_calls"] = Json::array({call(1, "none")});
  talk.session->record(begun.turn, said, answer, "initial");
  Json sent = said_by("assistant", "");
  sent["tool_calls"] = Json::array({call(1, "call_1")});
  const Json result{{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "5"}};
  talk.ask(Json::array({asks("one"), sent, result}), 1, tools);
  CHECK(talk.turn(1).parent == 0);
  CHECK(talk.turn(1).kept == talk.turn(0).context.size() + said.tokens.size());
  sent["tool_calls"] = Json::array({call(2, "call_1")});
  talk.ask(Json::array({asks("one"), sent, result}), 1, tools);
  CHECK(talk.turn(2).parent == -1);
}

TEST_CASE("in a run the options are the run's, and seeds depend on what is asked alone") {
  SessionRules rules;
  rules.options.emplace();
  rules.options->sampling.temperature = 0.5;
  rules.options->sampling.seed = 3;
  rules.longest_completion = 40;
  rules.key = 11;
  Talk one(rules), other(rules);
  const Json a = Json::array({asks("a")}), b = Json::array({asks("b")});
  const auto seed = [](const Session::Begun& begun) { return begun.asked.options.sampling.seed; };
  const auto first = one.ask(a);
  CHECK(first.asked.options.sampling.temperature == 0.5f);
  CHECK(first.asked.index == 11);
  CHECK(first.asked.options.max_new_tokens == 40);
  const uint64_t of_a = seed(first), of_b = seed(one.ask(b)), again = seed(one.ask(a));
  CHECK(seed(other.ask(b)) == of_b);
  CHECK(seed(other.ask(a)) == of_a);
  CHECK(seed(other.ask(a)) == again);
  CHECK(std::set{of_a, of_b, again}.size() == 3);
  rules.number = 1;
  CHECK(seed(Talk(rules).ask(a)) != of_a);
}

TEST_CASE("a turn names the weights that sampled it, whatever sampled those before") {
  Talk talk;
  const Json first = Json::array({asks("one")});
  talk.say(talk.ask(first).turn, "a", Json(), "step-1");
  const Json second = Json::array({asks("one"), said_by("assistant", "a"), asks("two")});
  talk.say(talk.ask(second).turn, "b", Json(), "step-2");
  const Json turns = talk.session->to_json()["turns"];
  REQUIRE(turns.size() == 2);
  CHECK(turns[0]["weight_version"] == "step-1");
  CHECK(turns[1]["weight_version"] == "step-2");
  CHECK(turns[1]["parent"] == 0);
}

TEST_CASE("an answer that would take too much memory is refused before a turn is kept") {
  Talk talk;
  CompletionRequest request;
  request.chat = true;
  request.prompts = {Json::array({asks("one")})};
  request.num_samples = 64;
  request.logprobs = true;
  request.options.top_logprobs = 20;
  request.max_tokens = 1 << 19;
  const auto begin = [&] {
    talk.session->begin(request, talk.format, ToolCallFormat::kHermes, 7, 1 << 20, 0);
  };
  CHECK_THROWS_WITH_AS(begin(), doctest::Contains("the answer may take"), DataError);
  CHECK(talk.session->num_tokens() == 0);
  CHECK(talk.session->to_json()["turns"].empty());
  request.num_samples = 1;
  CHECK_NOTHROW(begin());
}

TEST_CASE("a session's limits and its end") {
  SessionRules rules;
  rules.most_turns = 2;
  rules.longest_completion = 9;
  Talk talk(rules);
  const Json first = Json::array({asks("one")});
  talk.say(talk.ask(first).turn, "four");
  CHECK(talk.status([&] { talk.ask(first, 2); }) == 403);
  CHECK(talk.session->state().limited);
  // The answer and what follows it are more than 9 tokens.
  const Json long_one = Json::array({asks("one"), said_by("assistant", "four"), asks("and so on")});
  CHECK(talk.status([&] { talk.ask(long_one); }) == 400);
  talk.session->reward(0.5);
  CHECK(talk.status([&] { talk.session->reward(1); }) == 409);
  CHECK(talk.status([&] { talk.ask(first); }) == 410);
  const Json json = talk.session->to_json();
  CHECK(json["reward"] == 0.5);
  CHECK(json["closed"] == true);
  CHECK(json["turns"].size() == 1);
  CHECK_THROWS_AS(parse_reward(R"({"reward": 1e999})"), DataError);
  CHECK_THROWS_AS(parse_reward(R"({"reward": 1e31})"), DataError);
  CHECK_THROWS_AS(parse_reward(R"({"reward": "1"})"), DataError);
  CHECK_THROWS_AS(parse_reward(R"({"reword": 1})"), DataError);
  CHECK(parse_reward(R"({"reward": -2})") == -2);
}

namespace {

int status(const std::function<void()>& act) {
  try {
    act();
  } catch (const Refusal& e) {
    return e.status;
  }
  return 200;
}

}  // namespace

TEST_CASE("sessions of one key are nobody else's, and leave the others their share") {
  Sessions all({.sessions = 4, .tokens = 1 << 20, .idle_seconds = 1e9, .owners = 2}, {}, true);
  const auto mine = all.for_completions("a", 0), theirs = all.for_completions("a", 1);
  CHECK(mine != theirs);
  CHECK(all.find("a", 0) == mine);
  CHECK(all.find("a", 1) == theirs);
  all.for_completions("b", 0);
  CHECK(status([&] { all.find("b", 1); }) == 404);
  all.remove("b", 1);
  CHECK(status([&] { all.find("b", 0); }) == 200);
  CHECK(status([&] { all.for_completions("c", 0); }) == 429);
  CHECK(status([&] { all.for_completions("c", 1); }) == 200);
  all.remove("a", 0);
  CHECK(all.find("a", 1) == theirs);
}

TEST_CASE("one address leaves others a quarter of the sessions") {
  Sessions all({.sessions = 8, .tokens = 1 << 20, .idle_seconds = 1e9}, {}, true);
  for (int i = 0; i < 6; ++i) all.for_completions("a" + std::to_string(i), 0, "10.0.0.1");
  CHECK(status([&] { all.for_completions("more", 0, "10.0.0.1"); }) == 429);
  CHECK(status([&] { all.for_completions("a0", 0, "10.0.0.1"); }) == 200);
  CHECK(status([&] { all.for_completions("b", 0, "10.0.0.2"); }) == 200);
}

TEST_CASE("a server's sessions are bounded, and forgotten when nobody uses them") {
  Sessions few({.sessions = 2, .tokens = 1 << 20, .idle_seconds = 1e9}, {}, true);
  const auto a = few.for_completions("a");
  CHECK(few.for_completions("a") == a);
  few.for_completions("b");
  CHECK(status([&] { few.for_completions("c"); }) == 429);
  few.remove("b");
  few.for_completions("c");
  CHECK(status([&] { few.for_completions("no name"); }) == 400);
  CHECK(status([&] { few.find("b"); }) == 404);
  Sessions idle({.sessions = 1, .tokens = 1 << 20, .idle_seconds = -1}, {}, true);
  idle.for_completions("a");
  idle.for_completions("b");
  CHECK(status([&] { idle.find("a"); }) == 404);
  Sessions closed({}, {}, false);
  CHECK(status([&] { closed.for_completions("a"); }) == 401);
  CHECK(status([&] { closed.for_completions(""); }) == 401);
  const auto opened = closed.open("a", {});
  CHECK(closed.for_completions("a") == opened);
}
