// What is asked of servers, without one (tests/e2e/remote_test.sh has them).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "temper/generate/remote/protocol.h"
#include "temper/generate/remote/remote_engine.h"

using namespace temper;
using namespace temper::generate;

TEST_CASE("urls go with or without /v1") {
  for (const char* text : {"http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"})
    CHECK(http::parse_url(text).str() == "http://h:1");
  CHECK(http::parse_url("https://h/a/b/v1").str() == "https://h/a/b");
  CHECK(http::parse_url("https://h/a/b/v1").origin == "https://h");
  for (const char* text : {"h:1", "http://", "http:///v1", "ftp://h", ""})
    CHECK_THROWS_AS(http::parse_url(text), ConfigError);
}

TEST_CASE("every request of a run has a seed of its own, the same in each run") {
  std::set<uint64_t> seeds;
  for (const uint64_t seed : {0, 1})
    for (int64_t index = 0; index < 50; ++index)
      for (int64_t first = 0; first < 8; ++first) {
        Request request;
        request.index = index;
        request.options.sampling.seed = seed;
        // Later turns of a sample that others have added to, too.
        for (const int64_t position : {0, 9}) {
          request.position = position;
          const uint64_t one = remote::task_seed(request, first);
          CHECK(one == remote::task_seed(request, first));
          CHECK(one < (uint64_t{1} << 31));
          seeds.insert(one);
        }
        request.position = 0;
        const uint64_t counted = remote::task_seed(request, first);
        request.first_sample = first;
        CHECK(remote::task_seed(request, 0) == counted);
      }
  CHECK(seeds.size() == 2 * 50 * 8 * 2);
}

TEST_CASE("each kind of server is told every option in its own names") {
  GenerationOptions plain, all;
  all.sampling = {.top_k = 7,
                  .top_p = 0.5,
                  .min_p = 0.25,
                  .repetition_penalty = 1.5,
                  .presence_penalty = 0.5,
                  .frequency_penalty = -0.5,
                  .logit_bias = {{11, -5.0F}}};
  all.min_new_tokens = 3;
  all.ignore_eos = true;
  all.stop = {"x"};
  all.stop_token_ids = {4, 9};
  using Spec = grammar::Spec;
  // In no particular order.
  const auto sorted = [](const Json& json) { return nlohmann::json::parse(json.dump()); };
  const auto told = [&](const std::string& kind, Spec::Kind form) {
    all.grammar = std::make_shared<const Spec>(form, "text", "here");
    return sorted(remote::make_protocol(kind, 61)->parameters(all));
  };
  const Json shared{{"temperature", 1.0},
                    {"top_k", 7},
                    {"top_p", 0.5},
                    {"min_p", 0.25},
                    {"repetition_penalty", 1.5},
                    {"presence_penalty", 0.5},
                    {"frequency_penalty", -0.5},
                    {"logit_bias", {{"11", -5.0}}},
                    {"ignore_eos", true},
                    {"stop", {"x"}},
                    {"stop_token_ids", {4, 9}}};
  for (const char* kind : {"openai", "vllm"}) {
    CHECK(sorted(remote::make_protocol(kind, 61)->parameters(plain)) ==
          sorted({{"max_tokens", 64},
                  {"temperature", 1.0},
                  {"top_p", 1.0},
                  {"top_k", -1},
                  {"min_p", 0.0},
                  {"repetition_penalty", 1.0}}));
    Json expected = shared;
    expected.update({{"max_tokens", 64}, {"min_tokens", 3}});
    expected["structured_outputs"] = {{"json", "text"}};
    CHECK(told(kind, Spec::Kind::kJsonSchema) == sorted(expected));
    expected["structured_outputs"] = {{"regex", "text"}};
    CHECK(told(kind, Spec::Kind::kRegex) == sorted(expected));
    expected["structured_outputs"] = {{"grammar", "text"}};
    CHECK(told(kind, Spec::Kind::kGrammar) == sorted(expected));
  }
  Json expected = shared;
  expected.update({{"max_new_tokens", 64}, {"min_new_tokens", 3}, {"ebnf", "text"}});
  CHECK(told("sglang", Spec::Kind::kGrammar) == sorted(expected));
  expected.erase("ebnf");
  expected["regex"] = "text";
  CHECK(told("sglang", Spec::Kind::kRegex) == sorted(expected));
  all.sampling.no_repeat_ngram = 2;
  CHECK(told("openai", Spec::Kind::kRegex)["no_repeat_ngram_size"] == 2);
}

TEST_CASE("a server that nobody answers for ends the sampling and names it") {
  ServerSection section;
  section.urls = {"http://127.0.0.1:9"};
  {
    RemoteEngine engine(section, 61, nullptr);
    Request request;
    request.prompt = {3, 4};
    engine.submit(request);
    engine.stop();
    const auto run = [&] {
      while (engine.step({})) {
      }
    };
    try {
      run();
      CHECK(false);
    } catch (const RunError& e) {
      CHECK(std::string(e.what()).find("http://127.0.0.1:9") != std::string::npos);
    }
  }
  RemoteEngine engine(section, 61, nullptr);
  Request request;
  CHECK_THROWS_AS(engine.submit(request), DataError);  // an empty prompt
  request.prompt = {3};
  request.options.stop = {"x"};
  CHECK_THROWS_AS(engine.submit(request), ConfigError);
  section.api_key_env = "TEMPER_NO_SUCH_KEY";
  CHECK_THROWS_AS(RemoteEngine(section, 61, nullptr), ConfigError);
}

TEST_CASE("of which distribution a server's log-probabilities are is found out") {
  // As vLLM: of the model, or after what top-k leaves; one that knows no top-k refuses it.
  struct Server : remote::Protocol {
    enum class Kind { kRaw, kProcessed, kWithoutTopK } kind;
    explicit Server(Kind k) : kind(k) {}
    int64_t most_samples() const override { return 1; }
    void load(http::Client&, const remote::RemoteWeights&,
              const remote::RemoteWeights&) const override {}
    std::vector<remote::RemoteSample> sample(http::Client&, const std::string&,
                                             const remote::SampleTask& task,
                                             const remote::RemoteWeights&) const override {
      const bool cut = task.request->options.sampling.top_k == 1;
      if (cut && kind == Kind::kWithoutTopK)
        throw http::Failure("status 400 unknown field top_k", false, 400);
      // A model may be sure of some token.
      const float other = cut && kind == Kind::kProcessed ? 0.f : -1.5f;
      return {{{5, 6}, {0.f, other}, false, {}}};
    }
  };
  http::Client http(http::parse_url("http://127.0.0.1:9"), "", 1);
  const auto found = [&](Server::Kind kind) {
    return Server(kind).find_logprobs(http, "model", 3);
  };
  CHECK((found(Server::Kind::kRaw) == remote::LogprobsOf::kModel));
  CHECK((found(Server::Kind::kProcessed) == remote::LogprobsOf::kSampled));
  CHECK((found(Server::Kind::kWithoutTopK) == remote::LogprobsOf::kUnknown));
}
