// What a request's body says, and what is wrong with others.
#include "temper/serve/request.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/generate/remote/protocol.h"
#include "temper/serve/asked.h"
#include "temper/serve/forced_calls.h"
#include "temper/serve/tool_turn.h"

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
  } catch (const Error& e) {
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
  CHECK(r.options.top_logprobs == 1);
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
  // Larger than what the engine takes, which is as good as all.
  CHECK(text(R"("top_k": 9223372036854775807)").options.sampling.top_k ==
        static_cast<int64_t>(generate::kLargestNumber));
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
  CHECK(text(R"("logprobs": 0)").options.top_logprobs == 0);
  CHECK(text(R"("logprobs": 5)").options.top_logprobs == 5);
  CHECK(text(R"("logprobs": 5, "echo": true)").options.prompt_logprobs);
  CHECK_FALSE(text(R"("echo": true)").options.prompt_logprobs);
  CHECK(text(R"("logprobs": true)").logprobs);
  CHECK(chat(R"("logprobs": true)").logprobs);
  CHECK(chat(R"("logprobs": true, "top_logprobs": 20)").options.top_logprobs == 20);
  CHECK(problem_of(R"("logprobs": 21)").starts_with("`logprobs`: found 21"));
}

TEST_CASE("messages of parts, and tools") {
  const CompletionRequest r = parse_request(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
          {"type": "text", "text": "b"}]}], "tools": [{"type": "function",
          "function": {"name": "f"}}], "max_tokens": 3, "max_completion_tokens": 4})",
      true);
  // As they are: some templates read parts, and no template is known yet.
  CHECK(r.prompts.at(0)[0]["content"].size() == 2);
  CHECK(r.tools.size() == 1);
  CHECK(r.max_tokens == 4);
  CHECK(chat(R"("tools": [{"function": {"name": "f"}}], "tool_choice": "none")").tools.is_null());
  CHECK(problem(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})", true)
            .starts_with("`tools`: found {}"));
  CHECK(problem(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", true)
            .starts_with("`messages`: found"));
  for (const char* wrong : {"[]", "\"a\"", "[1]", "[{}]", R"([{"role": 1}])"})
    CHECK_MESSAGE(
        problem(std::string("{\"messages\": ") + wrong + "}", true).starts_with("`messages`: "),
        wrong);
}

TEST_CASE("images come in data: URIs, and parts have nothing else") {
  const auto parts = [](const std::string& content) {
    return R"({"messages": [{"role": "user", "content": [)" + content + "]}]}";
  };
  const CompletionRequest r = parse_request(
      parts(R"({"type": "text", "text": "a"}, {"type": "image_url", "image": "secret.png",
               "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}})"),
      true);
  CHECK(r.has_images);
  CHECK(r.image_bytes == std::ssize(std::string("data:image/png;base64,AA==")));
  CHECK(r.prompts.at(0)[0]["content"][1] ==
        Json{{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64,AA=="}}}});
  for (const char* wrong :
       {R"({"type": "image", "image": "data:image/png;base64,AA=="})",
        R"({"type": "image_url", "image_url": {"url": "http://x/y.png"}})",
        R"({"type": "image_url", "image_url": "y.png"})",
        R"({"type": "image_url", "image_url": {"path": "y.png"}})",
        R"({"type": "image_url", "image_url": {"url": 1}})", R"({"type": "input_audio"})"})
    CHECK_MESSAGE(problem(parts(wrong), true).starts_with("`messages`: found "), wrong);
  CHECK_FALSE(chat(R"("n": 1)").has_images);
  const std::string one = R"({"type": "image_url", "image_url": {"url": "data:,"}})";
  std::string many = one;
  for (int i = 1; i < 1024; ++i) many += "," + one;
  CHECK(problem(parts(many), true) == "");
  CHECK(problem(parts(many + "," + one), true) == "more than 1024 images");
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
                              R"("echo": 1)",
                              R"("max_tokens": 0)",
                              R"("min_tokens": -1)",
                              R"("stop_token_ids": [-1])",
                              R"("logit_bias": {"a": 1})",
                              R"("logit_bias": {"1": 101})",
                              R"("logit_bias": [])",
                              R"("presence_penalty": 2.5)",
                              R"("guided_regex": 1)",
                              R"("guided_choice": [])",
                              R"("structured_outputs": {"regexp": "a"})",
                              R"("guided_regex": "a", "guided_json": {})",
                              R"("response_format": {"type": "xml"})",
                              R"("response_format": {"type": "json_schema"})",
                              R"("best_of": 2)",
                              R"("frequency_penalty": -3)",
                              R"("repetition_penalty": 0)",
                              R"("model": 1)",
                              R"("maxtokens": 1)"})
    CHECK_MESSAGE(problem_of(members).find('`') != std::string::npos, members);
  CHECK(
      problem_of(R"("frequency_penalty": 0.0, "echo": false, "response_format": {"type": "text"})")
          .empty());
  const std::string many = problem(R"({"prompt": ["a", "b"], "n": 4096})");
  CHECK(many.find("at most 4096 completions") != std::string::npos);
  // To its end, whatever characters the client's text has.
  CHECK(problem_of(R"("structured_outputs": {"re\u0000gexp": "a"})") ==
        "`re\\x00gexp`: unknown parameter");
  ServerOptions options;
  options.models.push_back({"known"});
  CHECK_THROWS_WITH_AS(model_of(options, std::string("a\0b", 3)),
                       "`model`: found a\\x00b, expected one of known", Refusal);
  CHECK_THROWS_AS(parse_reload(R"({"model_path": "/tmp\u0000/x"})"), DataError);
}

TEST_CASE("what OpenAI and vLLM have for sampling") {
  const CompletionRequest r = text(
      R"("presence_penalty": -1, "frequency_penalty": 0.5, "logit_bias": {"7": -100, "3": 2.5},
         "min_tokens": 3, "stop_token_ids": [4, 5], "no_repeat_ngram_size": 3, "echo": true,
         "max_tokens": 0)");
  CHECK(r.options.sampling.presence_penalty == -1);
  CHECK(r.options.sampling.frequency_penalty == 0.5);
  const auto& bias = r.options.sampling.logit_bias;
  REQUIRE(bias.size() == 2);
  CHECK((bias[0] == std::pair<int32_t, float>(3, 2.5f) ||
         bias[1] == std::pair<int32_t, float>(3, 2.5f)));
  CHECK(r.options.min_new_tokens == 3);
  CHECK(r.options.stop_token_ids == std::vector<int32_t>{4, 5});
  CHECK(r.options.sampling.no_repeat_ngram == 3);
  CHECK(r.echo);
  CHECK(r.max_tokens == 0);
}

TEST_CASE("the server obeys each option that a client of it can ask for, within its range") {
  using generate::Overloaded;
  generate::GenerationOptions asked;
  size_t offered = 0;
  for (const generate::SamplingOption& option : generate::sampling_options()) {
    const auto offer = option.at(generate::Api::kOpenAi);
    if (!offer) continue;
    const auto refuses = [&, name = offer->name](double value) {
      const std::string found = problem_of(str("\"", name, "\": ", value));
      CHECK_MESSAGE(found.find("`" + name + "`: found ") != std::string::npos, found);
    };
    const auto check_range = [&](double step) {
      if (offer->rule.min) refuses(*offer->rule.min - (offer->rule.above_min ? 0 : step));
      if (offer->rule.max) refuses(*offer->rule.max + step);
    };
    visit(option, asked,
          Overloaded{[&](double& value) {
                       value = 0.25;
                       check_range(0.25);
                     },
                     [&](int64_t& value) {
                       value = 3;
                       check_range(1);
                     },
                     [&](generate::LogitBias& bias) { bias = {{11, -5.0F}}; },
                     [&](bool& on) { on = true; },
                     [&](std::vector<std::string>& texts) { texts = {"x", "y"}; },
                     [&](std::vector<int32_t>& ids) { ids = {4}; },
                     [&](generate::GrammarMember) { --offered; }});
    ++offered;
  }
  const auto client = generate::remote::make_protocol("openai", 61);
  Json body = client->parameters(asked);
  CHECK(body.size() == offered);
  body["prompt"] = "a";
  CompletionRequest found = parse_request(dump_json(body), false);
  found.options.max_new_tokens = found.max_tokens.value();
  for (const generate::SamplingOption& option : generate::sampling_options())
    if (option.at(generate::Api::kOpenAi) &&
        !std::holds_alternative<generate::GrammarMember>(option.member))
      CHECK_MESSAGE(option.is_set(found.options), option.name);
  CHECK(client->parameters(found.options) == client->parameters(asked));
}

TEST_CASE("each request has the date of its own time") {
  int calls = 0;
  jinja::RenderOptions render;
  render.clock = [&calls] {
    std::tm time{};
    time.tm_mday = ++calls;
    return time;
  };
  // What is rendered shows in the error that the template raises.
  ServerOptions options;
  options.models.push_back({"m", 0});
  options.format.chat = std::make_shared<const ChatTemplate>(ChatTemplate::parse(
      "{{ raise_exception('day ' ~ strftime_now('%d')) }}", "t", Json::object(), render));
  const char* root = std::getenv("TEMPER_SOURCE_DIR");
  const std::string path = std::string(root ? root : ".") + "/tests/golden/tokenizers/qwen2.json";
  options.format.tokenizer =
      Tokenizer::parse(read_json_file(path).at("tokenizer").dump(), "tokenizer");
  const auto day = [&] {
    try {
      requests_of(options, chat("\"n\": 1"), options.models[0]);
    } catch (const DataError& e) {
      const std::string said = e.what();
      return said.substr(said.find("day ") + 4, 2);
    }
    return std::string();
  };
  CHECK(day() == "02");  // the first call was when the template was loaded
  CHECK(day() == "03");
}

TEST_CASE("tools without parameters have none, in templates that read them") {
  const std::string root =
      std::getenv("TEMPER_SOURCE_DIR") ? std::getenv("TEMPER_SOURCE_DIR") : ".";
  const std::string golden = root + "/tests/golden/";
  ServerOptions options;
  options.models.push_back({"m", 0});
  options.most_positions = 1 << 20;
  options.format.tokenizer = Tokenizer::parse(
      read_json_file(golden + "tokenizers/qwen2.json").at("tokenizer").dump(), "tokenizer");
  const auto rendered = [&](const char* file, const std::string& function) {
    options.format.chat = std::make_shared<const ChatTemplate>(ChatTemplate::parse(
        read_file(golden + "templates/" + file, 1 << 20), file, Json{{"bos_token", "<s>"}}));
    const CompletionRequest r =
        chat(R"("tools": [{"type": "function", "function": )" + function + "}]");
    return options.format.tokenizer->decode(
        requests_of(options, r, options.models[0]).at(0).prompt);
  };
  for (const char* file : {"hermes.jinja", "qwen3.jinja", "llama31.jinja"}) {
    CAPTURE(file);
    const std::string empty = rendered(
        file,
        R"({"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}})");
    CHECK(empty.find("f") != std::string::npos);
    CHECK(rendered(file, R"({"name": "f", "description": "d"})") == empty);
    CHECK(rendered(file, R"({"name": "f", "description": "d", "parameters": null})") == empty);
  }
}

TEST_CASE("unknown parameters are passed over and named, unless they look misspelled") {
  const CompletionRequest r = text(R"("top_a": 0.2, "logits_processors": [], "user": "u")");
  CHECK(r.ignored == std::vector<std::string>{"top_a", "logits_processors"});
  CHECK(text(R"("top_p": 0.5)").ignored.empty());
  for (const char* members : {R"("temprature": 1)", R"("maxtokens": 1)", R"("max_token": 1)",
                              R"("tempreature": 1)", R"("best_off": 1)"})
    CHECK_MESSAGE(problem_of(members).find("did you mean") != std::string::npos, members);
  CHECK(problem_of(R"("structured_outputs": {"regex": "a", "other": 1})").find("unknown") !=
        std::string::npos);
}

TEST_CASE("what a request does not say is the server's") {
  generate::GenerationOptions defaults;
  defaults.sampling = {.temperature = 0.6, .top_k = 20, .top_p = 0.95, .repetition_penalty = 1.05};
  const auto sampling = [&](const std::string& members) {
    return parse_request("{\"prompt\": \"a\"" + members + "}", false, defaults).options.sampling;
  };
  CHECK(sampling("").temperature == 0.6);
  CHECK(sampling("").top_k == 20);
  CHECK(sampling("").repetition_penalty == 1.05);
  CHECK(sampling(R"(, "temperature": 1, "top_k": -1, "top_p": 1)").temperature == 1);
  CHECK(sampling(R"(, "temperature": 1, "top_k": -1, "top_p": 1)").top_k == 0);
  CHECK(sampling(R"(, "temperature": 1, "top_k": -1, "top_p": 1)").top_p == 1);
  CHECK(sampling(R"(, "temperature": null)").temperature == 0.6);
}

TEST_CASE("variables of the chat template") {
  CHECK(chat(R"("n": 1)").template_variables.is_null());
  CHECK(chat(R"("chat_template_kwargs": {"enable_thinking": false})").template_variables ==
        Json({{"enable_thinking", false}}));
  CHECK(chat(R"("reasoning_effort": "low")").template_variables ==
        Json({{"reasoning_effort", "low"}}));
  // What the server gives to the template is not the client's to say.
  const CompletionRequest r = chat(
      R"("chat_template_kwargs": {"add_generation_prompt": false, "tools": [], "a": 1}, "top_a": 1)");
  CHECK(r.template_variables == Json({{"a", 1}}));
  CHECK(r.ignored == std::vector<std::string>{"chat_template_kwargs.add_generation_prompt",
                                              "chat_template_kwargs.tools", "top_a"});
  CHECK(chat(R"("chat_template_kwargs": {"messages": []})").template_variables.is_null());
  CHECK(problem(R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 1})",
                true)
            .starts_with("`chat_template_kwargs`: found 1"));
  const std::string long_text = "\"" + std::string(100000, 'a') + "\"";
  for (const std::string& variable : {"\"reasoning_effort\": " + long_text,
                                      "\"chat_template_kwargs\": {\"a\": " + long_text + "}"})
    CHECK(problem("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], " + variable + "}",
                  true)
              .find("expected at most 65536") != std::string::npos);
}

TEST_CASE("arguments of calls that are nested without end are refused") {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  CHECK(
      problem(
          R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ")" +
              deep + R"("}}]}]})",
          true)
          .find("`arguments` are JSON") != std::string::npos);
}

TEST_CASE("forms of completions") {
  using Kind = grammar::Spec::Kind;
  const auto form = [](const char* members) { return text(members).options.grammar; };
  CHECK(form(R"("response_format": {"type": "text"})") == nullptr);
  CHECK(form(R"("response_format": {"type": "json_object"})")->kind == Kind::kJsonSchema);
  const auto schema = form(
      R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "null"}}})");
  CHECK(schema->text == R"({"type":"null"})");
  CHECK(schema->where == "`response_format`");
  CHECK(form(R"("guided_json": "{}")")->text == "{}");
  CHECK(form(R"("structured_outputs": {"regex": "a+"})")->kind == Kind::kRegex);
  CHECK(form(R"("structured_outputs": {"grammar": "root ::= \"a\""})")->kind == Kind::kGrammar);
  CHECK(form(R"("structured_outputs": {"json_object": true})")->kind == Kind::kJsonSchema);
  CHECK(form(R"("guided_choice": ["a", "b", "a"])")->text == R"(root ::= "a" | "b")");
  std::string choices;
  for (int i = 0; i < 300; ++i)
    choices += (i > 0 ? ",\"" : "\"") + std::to_string(i) + " of \\\\vspace{64}\"";
  CHECK_NOTHROW(form(("\"guided_choice\": [" + choices + "]").c_str()));
  CHECK(problem_of("\"guided_regex\": \"" + std::string(20000, 'a') + "\"").find("bytes") !=
        std::string::npos);
  CHECK(form(R"("guided_choice": ["a\"b", "c"])")->text == R"(root ::= "a\"b" | "c")");
}

TEST_CASE("weights are named by their version, or by their directory") {
  CHECK(parse_reload(R"({"model_path": "d", "weight_version": "step-3"})").name == "step-3");
  CHECK(parse_reload(R"({"model_path": "d"})").name == "d");
  const std::string longest(256, 'v');
  CHECK(parse_reload(R"({"model_path": "d", "weight_version": ")" + longest + "\"}").name ==
        longest);
  CHECK_THROWS_AS(parse_reload(R"({"model_path": "d", "weight_version": "v)" + longest + "\"}"),
                  DataError);
  CHECK_THROWS_AS(parse_reload(R"({"model_path": "d", "weight_version": 3})"), DataError);
}

TEST_CASE("tools that have to be called, and calls that were spoken") {
  const char* const tools = R"("tools": [{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object"}}}, {"type": "function", "function": {"name": "g"}}])";
  const auto with = [&](const std::string& choice) {
    return chat(std::string(tools) + ", \"tool_choice\": " + choice);
  };
  CHECK(with("\"auto\"").tool_choice == ToolChoice::kAuto);
  CHECK(with("\"none\"").tools.is_null());
  const CompletionRequest named = with(R"({"type": "function", "function": {"name": "f"}})");
  CHECK(named.tool_choice == ToolChoice::kNamed);
  const ForcedCalls one = forced_calls(named, ToolCallFormat::kHermes);
  REQUIRE(one.tags.size() == 1);
  CHECK(one.tags[0].schema == Json({{"type", "object"}}));
  CHECK(one.tags[0].begin == "<tool_call>\n{\"name\": \"f\", \"arguments\": ");
  CHECK(one.tags[0].end == "}\n</tool_call>");
  CHECK(one.once);
  // Arguments are an object, also where the schema does not say so.
  const auto forced = [&](const std::string& parameters) {
    return forced_calls(chat(R"("tool_choice": "required", "tools": [{"type": "function",
        "function": {"name": "f", "parameters": )" +
                             parameters + "}}]"),
                        ToolCallFormat::kHermes);
  };
  CHECK(forced("{}").tags[0].schema == Json({{"type", "object"}}));
  // What is no schema of an object is refused, whether the tool has to be called or not.
  for (const char* wrong : {R"({"type": "array"})", "[]", "3", R"({"type": ["object", "null"]})",
                            R"({"type": "object", "properties": []})", R"({"required": "a"})",
                            R"({"properties": {"a": {"type": "text"}}})"})
    CHECK_MESSAGE(
        problem(std::string(R"({"messages": [{"role": "user", "content": "a"}], )") +
                    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": )" +
                    wrong + "}}]}",
                true)
            .starts_with("`tools`: the function \"f\": parameters"),
        wrong);
  // A grammar spells the name.
  const auto of_name = [](size_t length, const std::string& choice) {
    return problem(R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": ")" + choice +
                       R"(", "tools": [{"type": "function", "function": {"name": ")" +
                       std::string(length, 'f') + "\"}}]}",
                   true);
  };
  CHECK(of_name(64, "required").empty());
  CHECK(of_name(65, "required").find("a name of 65 characters, expected at most 64") !=
        std::string::npos);
  CHECK(of_name(65, "auto").empty());
  // Without parameters there are no arguments.
  const Json none{
      {"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
  const CompletionRequest required = with("\"required\"");
  const ForcedCalls any_of = forced_calls(required, ToolCallFormat::kHermes);
  REQUIRE(any_of.tags.size() == 2);
  CHECK(any_of.tags[1].schema == none);
  CHECK_FALSE(any_of.once);
  CHECK(forced_calls(required, ToolCallFormat::kLlama).tags[1].begin ==
        "{\"name\": \"g\", \"parameters\": ");
  CHECK(forced_calls(required, ToolCallFormat::kMistral).tags[1].end == "}]");
  CHECK(std::string(forced_beginning(required, ToolCallFormat::kMistral)) == "[TOOL_CALLS]");
  CHECK(std::string(forced_beginning(required, ToolCallFormat::kHermes)).empty());
  const grammar::Tag large{"a", Json{{"type", "null"}, {"title", std::string(600000, 'x')}}, "b"};
  CHECK_THROWS_WITH_AS(spec_of({{large, large}, "", true}), "tools: more than 1048576 bytes",
                       ConfigError);
  CHECK(problem(R"({"messages": [{"role": "user", "content": "a"}], )" + std::string(tools) +
                    R"(, "tool_choice": "required", "response_format": {"type": "json_object"}})",
                true)
            .find("two forms") != std::string::npos);
  for (const char* wrong :
       {R"("any")", R"({"type": "function", "function": {"name": "h"}})", "{}", "1"})
    CHECK_MESSAGE(problem(R"({"messages": [{"role": "user", "content": "a"}], )" +
                              std::string(tools) + ", \"tool_choice\": " + wrong + "}",
                          true)
                      .starts_with("`tool_choice`: found"),
                  wrong);

  const CompletionRequest any = with("\"auto\"");
  const auto shown = [&](const char* said) {
    return shown_before_calls(any, ToolCallFormat::kHermes, said);
  };
  CHECK(shown("hello") == 5);
  CHECK(shown("hello <tool") == 6);
  CHECK(shown("hello <tool_call>{}") == 6);
  CHECK(shown("a < b") == 5);
  CHECK(shown_before_calls(named, ToolCallFormat::kHermes, "{}") == 0);
  CHECK(shown_before_calls(any, ToolCallFormat::kLlama, "hello") == 0);
  const CompletionRequest r = parse_request(
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"type": "function",
          "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]})",
      true);
  CHECK(r.prompts.at(0)[0]["tool_calls"][0]["function"]["arguments"]["x"] == 1);
}
