// Judges behind a server, which answers what the test says.
#include "temper/rewards/judge.h"

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "temper/base/error.h"
#include "temper/http/server.h"

using namespace temper;
using namespace temper::rewards;

namespace {

// Answers chat completions with what `says` makes of the question, and counts them.
class ChatServer : public http::Handler {
 public:
  using Says = std::function<http::Answer(const std::string& question)>;
  explicit ChatServer(Says says) : says_(std::move(says)), server_(*this, {}) {
    port_ = server_.bind("127.0.0.1", 0);
    REQUIRE(port_ != 0);
    thread_ = std::thread([this] { server_.run(); });
  }
  ~ChatServer() override {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/v1"; }

  http::Admission admit(const http::RequestHead& head) override {
    if (head.path == "/v1/models")
      return {.answer = http::Answer{.body = R"({"data": [{"id": "m"}, {"id": "n"}]})"},
              .handle = {}};
    return {.answer = {},
            .handle =
                [this](const std::shared_ptr<http::Exchange>& exchange) {
                  const Json request = parse_json(exchange->body(), "request");
                  const std::string question = request["messages"][0]["content"];
                  {
                    const std::lock_guard lock(mutex_);
                    requests.push_back(request);
                  }
                  exchange->answer(says_(question));
                },
            .most_body_bytes = 1 << 20};
  }
  http::Answer refusal(int status, const std::string&) override { return {.status = status}; }
  void done(const http::RequestHead&, int, int64_t, double) override {}

  std::vector<Json> requests;  // read when none is under way

 private:
  Says says_;
  std::mutex mutex_;
  http::Server server_;
  int port_ = 0;
  std::thread thread_;
};

http::Answer words(const std::string& text) {
  return {.body = Json{{"choices", Json::array({{{"message", {{"content", text}}}}})}}.dump()};
}

RewardSection section_of(const std::string& url, const std::string& pattern = R"([-+]?\d+)") {
  RewardSection section;
  section.judge.url = url;
  section.judge.prompt = "Rate {completion} for {prompt} by {answer}: {{answer}} {\"a\": {}}";
  section.judge.pattern = pattern;
  section.timeout_seconds = 120;
  return section;
}

Sample sample_of(const std::string& completion, const std::string& answer = "42") {
  Sample sample;
  sample.row = std::make_shared<const Json>(Json{
      {"prompt", Json::array({{{"role", "user"}, {"content", "6 x 7?"}}})}, {"answer", answer}});
  sample.where = "rows.jsonl:1";
  sample.completion = completion;
  return sample;
}

std::vector<Verdict> judged(Reward& judge, const std::vector<std::string>& completions) {
  std::vector<Sample> samples;
  for (const std::string& completion : completions) samples.push_back(sample_of(completion));
  return judge.judge(samples);
}

}  // namespace

TEST_CASE("a question is the text with the row's fields, prompt and completion, filled in once") {
  const Sample sample = sample_of("{answer} {{x}}");
  CHECK(filled("{prompt}|{completion}|{answer}|{{answer}}|{|}|{}|{ a }|{\"b\": {\"c\": 1}}",
               sample) == "6 x 7?|{answer} {{x}}|42|{answer}|{|}|{}|{ a }|{\"b\": {\"c\": 1}}");
  CHECK(fields_of("{prompt} {completion} {a} {b.c} {a} {{d}}") ==
        std::vector<std::string>{"a", "b.c"});
  CHECK_THROWS_WITH_AS(filled("{other}", sample), doctest::Contains("rows.jsonl:1: "), DataError);
  Sample two = sample;
  two.row = std::make_shared<const Json>(parse_json(
      R"({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]})",
      "row"));
  CHECK(filled("{prompt}", two) == "system: s\nuser: u");
}

TEST_CASE("the last match in the answer is the value, and equal questions are asked once") {
  ChatServer server([](const std::string& question) {
    return words(question.find("good") != question.npos ? "from 1 to 10: 9" : "I say -2.");
  });
  RewardSection section = section_of(server.url());
  section.judge.scale = 0.5;
  const auto judge = make_server_judge(section);
  const auto verdicts = judged(*judge, {"good", "bad", "good", "good"});
  CHECK(verdicts[0].value == 4.5);
  CHECK(verdicts[1].value == -1);
  CHECK(verdicts[2].value == 4.5);
  CHECK(verdicts[3].value == 4.5);
  CHECK(judged(*judge, {"bad"})[0].value == -1);
  REQUIRE(server.requests.size() == 2);
  const Json& request = server.requests[0];
  CHECK(request["model"] == "m");
  CHECK(request["temperature"] == 0);
  CHECK(request["max_tokens"] == 256);
  CHECK(request["messages"].size() == 1);
  CHECK(judge->required_fields() == std::vector<std::string>{"answer"});
}

TEST_CASE("of a pattern with a group the group is the number; what is none is malformed") {
  ChatServer server([](const std::string& question) {
    if (question.find("none") != question.npos) return words("no number");
    if (question.find("empty") != question.npos) return words("score: (x)");
    if (question.find("null") != question.npos)
      return http::Answer{.body = R"({"choices": [{"message": {"content": null}}]})"};
    if (question.find("json") != question.npos) return http::Answer{.body = "hello"};
    return words("score: (1) then score: (+2.5e1) of 100");
  });
  const auto judge = make_server_judge(section_of(server.url(), R"(score: \((.*?)\))"));
  const auto verdicts = judged(*judge, {"right", "none", "empty", "null", "json"});
  CHECK(verdicts[0].value == 25);
  for (size_t i = 1; i < verdicts.size(); ++i) {
    CHECK(verdicts[i].kind == Verdict::Kind::kMalformed);
    CHECK(verdicts[i].value == 0);
  }
  CHECK(verdicts[1].detail ==
        "the judge answered `no number`, in which judge.pattern matches nothing");
  CHECK(verdicts[2].detail.find("matches `x`, expected a number") != std::string::npos);
}

TEST_CASE("a busy server is asked again, what it refuses is not, and failures are not kept") {
  std::atomic<int> asked = 0;
  ChatServer server([&](const std::string& question) {
    const int number = ++asked;
    if (question.find("refused") != question.npos)
      return http::Answer{.status = 400, .body = R"({"error": {"message": "no"}})"};
    return number < 3 ? http::Answer{.status = 503} : words("7");
  });
  RewardSection section = section_of(server.url());
  const auto judge = make_server_judge(section);
  CHECK(judged(*judge, {"x"})[0].value == 7);
  CHECK(asked == 3);
  const Verdict refused = judged(*judge, {"refused"})[0];
  CHECK(refused.kind == Verdict::Kind::kCrashed);
  CHECK(refused.detail.find("status 400") != std::string::npos);
  CHECK(asked == 4);
  judged(*judge, {"refused"});
  CHECK(asked == 5);
}

TEST_CASE("a server that is not there fails every sample of the call") {
  const auto judge = make_server_judge(section_of("http://127.0.0.1:9"));
  for (const Verdict& verdict : judged(*judge, {"a", "b", "c", "d", "e"})) {
    CHECK(verdict.kind == Verdict::Kind::kCrashed);
    CHECK(verdict.detail.find("http://127.0.0.1:9") != std::string::npos);
  }
}

TEST_CASE("a server is asked once before the run, and what it refuses is said in one line") {
  std::atomic<int> asked = 0;
  std::vector<http::Answer> answers;
  ChatServer server([&](const std::string&) { return answers.at(static_cast<size_t>(asked++)); });
  const auto refusal = [&](const std::string& url, std::vector<http::Answer> says) {
    asked = 0;
    answers = std::move(says);
    RewardSection section = section_of(url);
    section.name = "rated";
    try {
      make_server_judge(section)->check_answers();
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refusal(server.url(), {words("no number")}) == "");
  CHECK(server.requests.back()["max_tokens"] == 1);
  CHECK(refusal(server.url(), {{.status = 503}, {.status = 500}, words("7")}) == "");
  CHECK(asked == 3);
  const std::string begin = "rewards: rated: the judge at " + server.url().substr(0, 21);
  for (const auto& [answer, why] : std::vector<std::pair<http::Answer, std::string>>{
           {{.status = 401}, "judge.api_key_env names the environment variable with its key"},
           {{.status = 404}, "judge.url is expected to have /v1/models and /v1/chat/completions"},
           {{.body = "{}"}, "its answer has no `choices`"},
           {{.body = "hello"}, "the judge's answer"}}) {
    CAPTURE(why);
    const std::string said = refusal(server.url(), {answer});
    CHECK(said.starts_with(begin));
    CHECK(said.find(why) != std::string::npos);
    CHECK(said.find('\n') == std::string::npos);
    CHECK(asked == 1);
  }
  const http::Answer busy{.status = 429};
  CHECK(refusal(server.url(), {busy, busy, busy, busy}).find("status 429") != std::string::npos);
  const std::string nobody = refusal("http://127.0.0.1:9", {});
  CHECK(nobody.starts_with("rewards: rated: the judge at http://127.0.0.1:9: no answer ("));
  CHECK(nobody.ends_with("; start it first, or mend judge.url"));
}

TEST_CASE("of a server that is gone the rewards say so, of an answer without a number not") {
  std::vector<RewardSection> sections{section_of("http://127.0.0.1:9"), {}};
  sections[1].name = "length";
  const Sample sample = sample_of("x");
  const auto unanswered = [&] {
    return RewardSet(sections, true).judge({&sample, 1})[0].unanswered;
  };
  CHECK(unanswered().at(0).find("the judge at http://127.0.0.1:9: ") != std::string::npos);
  CHECK(unanswered().at(1) == "");
  sections[0].ends_where_dead = false;
  CHECK(unanswered().at(0) == "");
  sections[0].ends_where_dead = true;
  sections[0].weight = 0;
  CHECK(unanswered().at(0) == "");
  sections[0].weight = 1;
  ChatServer server([](const std::string&) { return words("no number"); });
  sections[0].judge.url = server.url();
  CHECK(unanswered().at(0) == "");
}

TEST_CASE("what is wrong with a judge is said before the run") {
  const auto problem = [](const auto& change) {
    RewardSection section = section_of("http://h:1");
    change(section);
    return find_problem({&section, 1});
  };
  CHECK(problem([](auto&) {}) == "");
  CHECK(problem([](auto& s) { s.judge.url.reset(); }) ==
        "`judge`: judge: found neither url nor model, expected one of them");
  CHECK(problem([](auto& s) { s.judge.model = "m"; }).find("both url and model") !=
        std::string::npos);
  CHECK(problem([](auto& s) { s.judge.url.swap(s.judge.model); }) ==
        "`judge`: judge.model: found http://h:1, expected a directory or id; the address of a "
        "server is judge.url");
  CHECK(problem([](auto& s) { s.judge.prompt = "Rate it"; }).find("found no {completion}") !=
        std::string::npos);
  CHECK(problem([](auto& s) { s.judge.prompt = ""; }).find("judge.prompt: missing") !=
        std::string::npos);
  CHECK(problem([](auto& s) { s.command = {"sh"}; }).find("found beside model, command") !=
        std::string::npos);
  CHECK_THROWS_WITH_AS(make_server_judge(section_of("http://h:1", "(")),
                       doctest::Contains("rewards: judge.pattern"), ConfigError);
  CHECK_THROWS_WITH_AS(make_server_judge(section_of("h")),
                       doctest::Contains("rewards: judge.url: found h"), ConfigError);
  RewardSection locked = section_of("http://h:1");
  locked.judge.api_key_env = "TEMPER_NO_SUCH_KEY";
  CHECK_THROWS_WITH_AS(make_server_judge(locked),
                       "rewards: judge.api_key_env: the environment has no TEMPER_NO_SUCH_KEY; it "
                       "must hold the API key",
                       ConfigError);
}
