// Drafting changes the number of passes and nothing else.
#include "temper/generate/sampling/speculation.h"

#include <doctest/doctest.h>
#include <omp.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/base/random.h"
#include "temper/generate/engine.h"
#include "temper/generate/score.h"
#include "tests/generate/tiny.h"

using namespace temper;
using namespace temper::generate;

namespace {

constexpr int32_t kLetters = 67;

std::unique_ptr<models::CausalLM> model_of_letters() { return tiny::model(kLetters, {5, 9}); }

// A tokenizer of as many letters.
std::shared_ptr<const Tokenizer> tokenizer_of_letters() {
  Json vocabulary;
  for (int32_t i = 0; i < kLetters; ++i) vocabulary[std::string(1, static_cast<char>('0' + i))] = i;
  const Json json = {
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  return Tokenizer::parse(json.dump(), "test");
}

struct Sample {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<TopLogprobs> top;
  bool stopped;
  std::string text;
  bool operator==(const Sample&) const = default;
};
using Samples = std::map<std::pair<int64_t, int64_t>, Sample>;

Samples samples(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& r : requests) engine.submit(r);
  Samples out;
  engine.run([&](Completion c) {
    engine.check_invariants();
    out[{c.index, c.sample}] = {c.tokens, c.logprobs, c.top_logprobs, c.stopped, c.text};
  });
  engine.check_invariants();
  return out;
}

struct Draw {
  explicit Draw(unsigned seed) : random(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  GenerationOptions options() {
    GenerationOptions o;
    constexpr double kTemperatures[] = {0, 0.2, 0.5, 1};
    o.sampling.temperature = kTemperatures[below(4)];
    o.sampling.seed = random();
    o.max_new_tokens = 1 + below(60);
    if (one_in(3)) o.sampling.top_k = 1 + below(5);
    if (one_in(3)) o.sampling.top_p = 0.6;
    if (one_in(4)) o.sampling.min_p = 0.1;
    if (one_in(4)) o.sampling.repetition_penalty = 1.1;
    if (one_in(4)) o.sampling.presence_penalty = 0.1;
    if (one_in(4)) o.sampling.frequency_penalty = 0.05;
    if (one_in(5)) o.sampling.logit_bias = {{7, 0.7f}, {11, -1.0f}};
    if (one_in(5)) o.sampling.no_repeat_ngram = 4;
    if (one_in(3)) o.min_new_tokens = below(o.max_new_tokens);
    if (one_in(3)) o.stop_token_ids = {17};
    if (one_in(3)) o.stop = {"ab", "<=;"};
    if (one_in(5)) o.top_logprobs = 2;
    if (one_in(6)) o.prompt_logprobs = true;
    o.ignore_eos = one_in(2);
    o.stream = one_in(2);
    return o;
  }
  std::vector<Request> requests() {
    std::vector<Request> out;
    for (int64_t r = 0; r < 6; ++r) {
      std::vector<int32_t> prompt;
      for (int64_t i = below(40); i >= 0; --i)
        prompt.push_back(static_cast<int32_t>(below(one_in(2) ? kLetters : 4)));
      out.push_back({.index = r, .prompt = prompt, .num_samples = 1 + below(5)});
      out.back().options = options();
      out.back().position = below(3);
      out.back().first_sample = below(3);
    }
    return out;
  }
  std::mt19937 random;
};

}  // namespace

TEST_CASE("with drafts and without: the same bits, whatever is asked for") {
  omp_set_num_threads(1);
  const auto model = model_of_letters();
  const auto tokenizer = tokenizer_of_letters();
  Draw draw(5);
  int64_t drafted = 0, accepted = 0;
  for (int trial = 0; trial < 16; ++trial) {
    CAPTURE(trial);
    const std::vector<Request> requests = draw.requests();
    Engine plain(*model, {.speculative = 0}, tokenizer);
    const Samples expected = samples(plain, requests);
    CHECK(plain.statistics().drafted_tokens == 0);
    for (const int64_t most : {kAutomatic, int64_t{1}, int64_t{5}, DraftTexts::kMostTokens}) {
      CAPTURE(most);
      const EngineOptions options{.max_batch = 1 + draw.below(20),
                                  .prefill_tokens = 1 + draw.below(40),
                                  .speculative = most};
      Engine engine(*model, options, tokenizer);
      for (int call = 0; call < 2; ++call) CHECK((samples(engine, requests) == expected));
      drafted += engine.statistics().drafted_tokens;
      accepted += engine.statistics().accepted_tokens;
    }
  }
  CHECK(accepted > 1000);         // many are accepted
  CHECK(drafted > 2 * accepted);  // and many are not
}

TEST_CASE("cancelled while drafts are verified: what there is, is the beginning of the whole") {
  const auto model = model_of_letters();
  Draw draw(11);
  for (int trial = 0; trial < 10; ++trial) {
    std::vector<Request> requests = draw.requests();
    for (Request& r : requests) r.options.stop = {}, r.options.stream = false;
    Engine plain(*model, {.speculative = 0});
    const Samples expected = samples(plain, requests);
    Engine engine(*model, {.speculative = 8});
    std::vector<RequestId> ids;
    for (const Request& r : requests) ids.push_back(engine.submit(r));
    size_t reported = 0;
    const Callbacks callbacks{
        [&](const Completion& c) {
          const Sample& whole = expected.at({c.index, c.sample});
          ++reported;
          CHECK(c.tokens.size() <= whole.tokens.size());
          CHECK(std::equal(c.tokens.begin(), c.tokens.end(), whole.tokens.begin()));
          CHECK((c.cancelled || c.tokens.size() == whole.tokens.size()));
        },
        {}};
    bool more = true;
    for (int step = 0; more; ++step) {
      if (step < 6) engine.cancel(ids[static_cast<size_t>(step)]);
      more = engine.step(callbacks);
      engine.check_invariants();
    }
    CHECK(reported == expected.size());
  }
}

TEST_CASE("log-probabilities of what drafts gave are those that score computes") {
  const auto model = model_of_letters();
  GenerationOptions options;
  options.sampling.temperature = 0.5;
  options.max_new_tokens = 80;
  options.ignore_eos = true;
  const std::vector<int32_t> prompt{1, 2, 3, 1, 2, 3, 1, 2};
  int64_t seen = 0;
  const auto statistics =
      generate::generate(*model, {prompt}, 8, options,
                         [&](const Completion& c) {
                           ScoreRequest row{prompt, prompt.size()};
                           row.tokens.insert(row.tokens.end(), c.tokens.begin(), c.tokens.end());
                           CHECK(score(*model, {row}, 0.5)[0].logprobs == c.logprobs);
                           ++seen;
                         },
                         nullptr, {}, {.speculative = 6});
  CHECK(seen == 8);
  CHECK(statistics.accepted_tokens > 50);
}

TEST_CASE("a text that repeats itself takes few passes; each token is told of once") {
  const auto model = model_of_letters();
  GenerationOptions options;
  options.sampling.temperature = 0;
  options.sampling.logit_bias = {{4, 1000.0f}};
  options.max_new_tokens = 200;
  options.ignore_eos = true;
  for (const int64_t most : {kAutomatic, int64_t{16}}) {
    Engine engine(*model, {.speculative = most});
    engine.submit({0, {1, 2, 3}, 1, options});
    int64_t told = 0;
    engine.run([](const Completion&) {}, [&](const Completion& c) { told += c.added; });
    CHECK(told == 200);
    CHECK(engine.statistics().passes < 40);
  }
}

TEST_CASE("where nothing is accepted, next to nothing is drafted") {
  const auto model = model_of_letters();
  GenerationOptions options;
  options.sampling.temperature = 30;  // any token, whatever came before
  options.max_new_tokens = 200;
  options.ignore_eos = true;
  for (const int64_t samples : {1, 16}) {
    Engine engine(*model, {});
    engine.submit({0, {1, 2, 3}, samples, options});
    engine.run([](const Completion&) {});
    const Engine::Statistics s = engine.statistics();
    CHECK(s.drafted_tokens < s.new_tokens / 20);
  }
}

TEST_CASE("a draft follows the place that has the most in common, or the nearest random number") {
  const auto draft = [](const DraftTexts& texts, int64_t sample, int64_t most = 16) {
    std::vector<int32_t> tokens;
    for (const DraftToken& t : texts.draft(sample, most, [](const DraftToken&) { return true; }))
      tokens.push_back(t.token);
    return tokens;
  };
  using Tokens = std::vector<int32_t>;
  SamplingOptions greedy;
  greedy.temperature = 0;
  const Tokens prompt{1, 2, 3, 4, 5, 2, 3, 6, 7};
  DraftTexts texts(prompt, greedy, 0, 0);
  CHECK(draft(texts, 0).empty());
  texts.append(0, 2);
  CHECK(draft(texts, 0).empty());  // 7, 2 never was
  texts.append(0, 3);
  CHECK((draft(texts, 0) == Tokens{6, 7}));  // the last place
  CHECK((draft(texts, 0, 1) == Tokens{6}));
  texts.append(1, 2);
  CHECK((draft(texts, 1) == Tokens{3}));  // what its sibling went on with
  texts.append(0, 4);
  texts.append(1, 3);
  CHECK((draft(texts, 1) == Tokens{4}));  // 7, 2, 3 is more than 2, 3
  CHECK((draft(texts, 0) == Tokens{5, 2, 3, 6, 7}));
  // Where siblings differ, the one whose random number was nearest.
  SamplingOptions sampled;
  sampled.seed = 8;
  int follows = 0;
  for (int64_t index = 0; index < 64; ++index) {
    DraftTexts three(prompt, sampled, index, 0);
    for (int64_t s = 0; s < 3; ++s) three.append(s, 50);
    three.append(0, 40);
    three.append(1, 41);
    const auto number = [&](int64_t s) {
      return RandomStream(8, RandomPurpose::kSampling, static_cast<uint64_t>(index),
                          static_cast<uint64_t>(s))
          .uniform_double(1);
    };
    const bool first = std::abs(number(0) - number(2)) < std::abs(number(1) - number(2));
    CHECK((draft(three, 2) == Tokens{first ? 40 : 41}));
    follows += first;
  }
  CHECK(follows > 16);
  CHECK(follows < 48);
}

TEST_CASE("--speculative is auto, off or a number") {
  CHECK(read_speculative("auto", "key") == kAutomatic);
  CHECK(read_speculative("off", "key") == 0);
  CHECK(read_speculative("4", "key") == 4);
  for (const char* wrong : {"", "on", "-1", "17", "4x"})
    CHECK_THROWS_WITH_AS(read_speculative(wrong, "key"),
                         doctest::Contains("expected auto, off or a number"), ConfigError);
}
