// What a request's body says, and what is wrong with others.
#include "temper/serve/request.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::serve;

namespace {

CompletionRequest text(const std::string& members) {
  return parse_request("{\"prompt\": \"a\", " + members + "}", false);
}
CompletionRequest chat(const std::string& members) {
  return parse_request(R"({"messages": [{"role": "user", "content": "a"}], )" + members + "}",
                       true);
}
// The message of what is wrong.
std::string problem(const std::string& body, bool is_chat = false) {
  try {
    parse_request(body, is_chat);
  } catch (const DataError& e) {
    return e.what();
  }
  return "";
}
std::string problem_of(const std::string& members) {
  return problem("{\"prompt\": \"a\", " + members + "}");
}

}  // namespace

TEST_CASE("the keys of a completion") {
  const CompletionRequest r = text(
      R"("model": "m", "n": 3, "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 5,
         "min_p": 0.1, "stop": ["x", "y"], "seed": -1, "logprobs": 1, "stream": true,
         "stream_options": {"include_usage": true}, "return_token_ids": true, "user": "u")");
  CHECK(r.model == "m");
  CHECK(r.prompts == std::vector<Json>{"a"});
  CHECK(r.num_samples == 3);
  CHECK(r.max_tokens == 7);
  CHECK(r.options.sampling.temperature == 0.5);
  CHECK(r.options.sampling.top_p == 0.9);
  CHECK(r.options.sampling.top_k == 5);
  CHECK(r.options.sampling.min_p == 0.1);
  CHECK(r.options.stop == std::vector<std::string>{"x", "y"});
  CHECK(r.seed == UINT64_MAX);
  CHECK(r.logprobs);
  CHECK(r.top_logprob);
  CHECK(r.stream);
  CHECK(r.include_usage);
  CHECK(r.return_token_ids);
}

TEST_CASE("what is absent or null has its default") {
  const CompletionRequest r =
      text(R"("seed": null, "stop": null, "max_tokens": null, "top_k": -1)");
  CHECK(r.num_samples == 1);
  CHECK_FALSE(r.max_tokens);
  CHECK_FALSE(r.seed);
  CHECK(r.options.sampling.temperature == 1);
  CHECK(r.options.sampling.top_k == 0);
  CHECK(r.options.stop.empty());
  CHECK_FALSE(r.logprobs);
  CHECK_FALSE(r.stream);
}

TEST_CASE("prompts: texts, ids and lists of them") {
  const auto prompts = [](const char* json) {
    return parse_request(std::string("{\"prompt\": ") + json + "}", false).prompts;
  };
  CHECK(prompts("[1, 2]") == std::vector<Json>{Json({1, 2})});
  CHECK(prompts(R"(["a", "b"])") == std::vector<Json>{"a", "b"});
  CHECK(prompts(R"([[1], "b", [2, 3]])") == std::vector<Json>{Json::array({1}), "b", Json({2, 3})});
  for (const char* wrong : {"[]", "{}", "1", "[[]]", "[1, \"a\"]", "[[1.5]]", "[true]"})
    CHECK_MESSAGE(problem(std::string("{\"prompt\": ") + wrong + "}").starts_with("`prompt`: "),
                  wrong);
  CHECK(problem("{}").starts_with("`prompt`: missing"));
}

TEST_CASE("log-probabilities in both forms") {
  CHECK(text(R"("logprobs": 0)").logprobs);
  CHECK_FALSE(text(R"("logprobs": 0)").top_logprob);
  CHECK(text(R"("logprobs": true)").logprobs);
  CHECK(chat(R"("logprobs": true)").logprobs);
  CHECK(chat(R"("logprobs": true, "top_logprobs": 1)").top_logprob);
  CHECK(problem_of(R"("logprobs": 5)").starts_with("`logprobs`: found 5"));
}

TEST_CASE("messages of parts, and tools") {
  const CompletionRequest r = parse_request(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
          {"type": "text", "text": "b"}]}], "tools": [{"type": "function"}],
          "max_tokens": 3, "max_completion_tokens": 4})",
      true);
  CHECK(r.prompts.at(0)[0]["content"] == "ab");
  CHECK(r.tools.size() == 1);
  CHECK(r.max_tokens == 4);
  CHECK(chat(R"("tools": [{}], "tool_choice": "none")").tools.is_null());
  CHECK(problem(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", true)
            .starts_with("`messages`: found"));
  for (const char* wrong : {"[]", "\"a\"", "[1]", "[{}]", R"([{"role": 1}])"})
    CHECK_MESSAGE(
        problem(std::string("{\"messages\": ") + wrong + "}", true).starts_with("`messages`: "),
        wrong);
}

TEST_CASE("what is wrong is named") {
  CHECK(problem("[]").find("expected a JSON object") != std::string::npos);
  CHECK(problem("{\"prompt\": ").starts_with("the request's body: not valid JSON"));
  CHECK(problem_of(R"("max_tokens": -1)").starts_with("`max_tokens`: found -1, expected"));
  for (const char* members : {R"("max_tokens": 0)",
                              R"("max_tokens": 1.5)",
                              R"("max_tokens": "7")",
                              R"("max_tokens": 18446744073709551615)",
                              R"("n": 0)",
                              R"("n": 100000)",
                              R"("temperature": -1)",
                              R"("temperature": "1")",

                              R"("top_p": 0)",
                              R"("top_p": 1.1)",
                              R"("top_k": -2)",
                              R"("min_p": 2)",
                              R"("stop": 1)",
                              R"("stop": [""])",
                              R"("stop": [1])",
                              R"("seed": 0.5)",
                              R"("stream": 1)",
                              R"("stream_options": {"include_usage": true})",
                              R"("echo": true)",
                              R"("best_of": 2)",
                              R"("response_format": {"type": "json_object"})",
                              R"("frequency_penalty": 0.1)",
                              R"("repetition_penalty": 0)",
                              R"("model": 1)",
                              R"("maxtokens": 1)"})
    CHECK_MESSAGE(problem_of(members).find('`') != std::string::npos, members);
  CHECK(
      problem_of(R"("frequency_penalty": 0.0, "echo": false, "response_format": {"type": "text"})")
          .empty());
  const std::string many = problem(R"({"prompt": ["a", "b"], "n": 4096})");
  CHECK(many.find("at most 4096 completions") != std::string::npos);
}
