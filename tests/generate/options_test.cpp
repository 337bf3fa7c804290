// Options of a request in the engine: grammars, ends, log-probabilities of more than was sampled.
// What is recorded stays what score computes.
#include <doctest/doctest.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/generate/beams.h"
#include "temper/generate/sampling/option_values.h"
#include "temper/generate/score.h"
#include "temper/models/files/load.h"
#include "tests/generate/tiny.h"
#include "tests/text/golden.h"

using namespace temper;
using namespace temper::generate;

namespace {

struct Setup {
  explicit Setup(const std::string& name = "qwen2") {
    tokenizer = golden_tokenizer(name);
    const int32_t no_text = tokenizer->vocab_size() + 1;
    model = generate::tiny::model(tokenizer->vocab_size() + 5, {no_text});
  }
  std::vector<Completion> run(const GenerationOptions& options, int64_t samples = 4,
                              const EngineOptions& engine = {}) const {
    std::vector<Completion> out;
    generate::generate(
        *model, prompts, samples, options, [&](Completion c) { out.push_back(std::move(c)); },
        tokenizer, {}, engine);
    return out;
  }
  void check_scores(const std::vector<Completion>& all, double temperature) const {
    std::vector<ScoreRequest> rows;
    for (const Completion& c : all) {
      const std::vector<int32_t>& prompt = prompts[static_cast<size_t>(c.index)];
      rows.push_back({prompt, prompt.size()});
      rows.back().tokens.insert(rows.back().tokens.end(), c.tokens.begin(), c.tokens.end());
    }
    const std::vector<ScoreResult> scores = score(*model, rows, temperature);
    for (size_t i = 0; i < all.size(); ++i) CHECK(all[i].logprobs == scores[i].logprobs);
  }

  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<models::CausalLM> model;
  const std::vector<std::vector<int32_t>> prompts{{3, 14, 15}, {9, 9, 2, 6, 5, 35, 8, 97, 9, 3}};
};

std::shared_ptr<const grammar::Spec> schema(const char* text) {
  return std::make_shared<const grammar::Spec>(grammar::Spec::Kind::kJsonSchema, text, "schema");
}

constexpr const char* kSchema = R"({"type": "object", "properties": {
    "a": {"type": "string", "maxLength": 5}, "b": {"enum": ["x", 1, null, "é"]},
    "c": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
    "required": ["a", "b", "c"]})";

}  // namespace

TEST_CASE("sampled JSON is JSON, and its log-probabilities are those of the full distribution") {
  if (!grammar::available()) return;
  for (const char* name : {"qwen2", "llama2_legacy", "gemma"}) {
    CAPTURE(name);
    const Setup s(name);
    for (const bool ends : {true, false}) {
      GenerationOptions options;
      options.max_new_tokens = 400;
      options.ignore_eos = !ends;
      options.sampling.seed = 11;
      options.sampling.temperature = 1.5;
      options.grammar = schema(kSchema);
      const std::vector<Completion> all = s.run(options);
      for (const Completion& c : all) {
        CAPTURE(c.text);
        CHECK(c.stopped);
        const Json value = parse_json(c.text, "completion");
        CHECK(value.at("a").is_string());
        CHECK(value.at("c").is_array());
        CHECK((c.tokens.back() == s.model->eos_token_ids[0]) == ends);
      }
      s.check_scores(all, 1.5);
      for (const EngineOptions& engine :
           {EngineOptions{.max_batch = 1}, EngineOptions{.speculative = 0},
            EngineOptions{.max_batch = 3, .speculative = 8}}) {
        const std::vector<Completion> again = s.run(options, 4, engine);
        for (size_t i = 0; i < all.size(); ++i) {
          CHECK(again[i].tokens == all[i].tokens);
          CHECK(again[i].logprobs == all[i].logprobs);
          CHECK(again[i].stopped == all[i].stopped);
        }
      }
    }
  }
}

TEST_CASE("grammars with filters, greedy, penalties and beams") {
  if (!grammar::available()) return;
  const Setup s;
  GenerationOptions options;
  options.max_new_tokens = 300;
  options.grammar = schema(kSchema);
  for (const auto& change : std::vector<std::function<void(SamplingOptions&)>>{
           [](SamplingOptions& o) { o.top_k = 3; }, [](SamplingOptions& o) { o.top_p = 0.5; },
           [](SamplingOptions& o) { o.min_p = 0.3; }, [](SamplingOptions& o) { o.temperature = 0; },
           [](SamplingOptions& o) { o.frequency_penalty = 2; }}) {
    GenerationOptions changed = options;
    change(changed.sampling);
    for (const Completion& c : s.run(changed, 2))
      if (c.stopped) CHECK(parse_json(c.text, "completion").is_object());
  }
  for (const bool ends : {true, false}) {
    options.ignore_eos = !ends;
    int64_t stopped = 0;
    beam_search(
        *s.model, s.prompts, 3, options, {.beams = 3},
        [&](Completion c) {
          CAPTURE(c.text);
          if (!c.stopped) return;
          ++stopped;
          CHECK(parse_json(c.text, "completion").is_object());
        },
        s.tokenizer);
    CHECK(stopped > 0);
  }
  CHECK_THROWS_AS(s.run([&] {
    GenerationOptions wrong = options;
    wrong.grammar = schema("{");
    return wrong;
  }()),
                  ConfigError);
}

TEST_CASE("the least number of tokens, and end tokens of a request") {
  const Setup s;
  GenerationOptions options;
  options.sampling.temperature = 1e-39;  // logits divided by it are not finite
  CHECK_THROWS_AS(s.run(options), ConfigError);
  options.sampling.temperature = 1;
  options.max_new_tokens = 40;
  options.sampling.logit_bias = {{s.model->eos_token_ids[0], 30.0f}};
  for (const Completion& c : s.run(options)) CHECK(c.tokens.size() == 1);
  options.min_new_tokens = 7;
  const std::vector<Completion> seven = s.run(options);
  for (const Completion& c : seven) CHECK(c.tokens.size() == 8);
  s.check_scores(seven, 1);
  options.ignore_eos = true;
  options.min_new_tokens = 0;
  options.sampling.logit_bias = {{17, 30.0f}};
  for (const Completion& c : s.run(options)) CHECK(c.tokens.size() == 40);
  options.stop_token_ids = {17};
  for (const Completion& c : s.run(options)) {
    CHECK(c.tokens == std::vector<int32_t>{17});
    CHECK(c.stopped);
  }
  options.stop_token_ids = {100000};
  CHECK_THROWS_AS(s.run(options), ConfigError);
  options.stop_token_ids = {};
  options.min_new_tokens = 41;
  CHECK_THROWS_AS(s.run(options), ConfigError);
}

TEST_CASE("the likeliest tokens, and the prompt's log-probabilities") {
  const Setup s;
  GenerationOptions options;
  options.max_new_tokens = 6;
  options.ignore_eos = true;
  options.top_logprobs = 3;
  options.prompt_logprobs = true;
  options.sampling.temperature = 0.7;
  for (const int64_t chunk : {2048, 4}) {
    const std::vector<Completion> all = s.run(options, 2, {.prefill_tokens = chunk});
    s.check_scores(all, 0.7);
    for (const Completion& c : all) {
      const std::vector<int32_t>& prompt = s.prompts[static_cast<size_t>(c.index)];
      REQUIRE(c.top_logprobs.size() == 6);
      for (size_t i = 0; i < 6; ++i) {
        std::vector<int32_t> before = prompt;
        before.insert(before.end(), c.tokens.begin(), c.tokens.begin() + static_cast<int64_t>(i));
        CHECK(c.top_logprobs[i] == score(*s.model, {{before, before.size()}}, 0.7, 3)[0].next_top);
      }
      REQUIRE(c.of_prompt);
      CHECK(c.of_prompt->logprobs == score(*s.model, {{prompt, 1}}, 0.7)[0].logprobs);
      REQUIRE(c.of_prompt->top.size() == prompt.size() - 1);
      CHECK(c.of_prompt->top[1] ==
            score(*s.model, {{{prompt[0], prompt[1]}, 2}}, 0.7, 3)[0].next_top);
    }
  }
}

// What a policy does that is updated while it samples.
TEST_CASE("a completion that goes on from its middle knows what it has said already") {
  const Setup s;
  std::vector<GenerationOptions> all(6);
  all[0].stop = {"e", "  "};
  all[1].min_new_tokens = 20;
  all[2].sampling.presence_penalty = 1.5;
  all[2].sampling.frequency_penalty = 0.5;
  all[3].sampling.no_repeat_ngram = 2;
  all[4].sampling.repetition_penalty = 1.7;
  if (grammar::available()) all[5].grammar = schema(kSchema);
  for (GenerationOptions& options : all) {
    options.max_new_tokens = 24;
    options.sampling.seed = 5;
    options.sampling.temperature = 1.3;
    for (const Completion& whole : s.run(options)) {
      for (const size_t at : {size_t{1}, size_t{4}, size_t{13}}) {
        CAPTURE(at);
        if (whole.tokens.size() <= at) continue;
        Request rest{whole.index, s.prompts[static_cast<size_t>(whole.index)], 1, options};
        rest.prompt.insert(rest.prompt.end(), whole.tokens.begin(),
                           whole.tokens.begin() + static_cast<std::ptrdiff_t>(at));
        rest.begun = rest.position = static_cast<int64_t>(at);
        rest.first_sample = whole.sample;
        rest.options.max_new_tokens -= rest.begun;
        Engine engine(*s.model, {}, s.tokenizer);
        engine.submit(std::move(rest));
        Completion c;
        engine.run([&](Completion done) { c = std::move(done); });
        std::vector<int32_t> tokens(whole.tokens.begin(),
                                    whole.tokens.begin() + static_cast<std::ptrdiff_t>(at));
        tokens.insert(tokens.end(), c.tokens.begin(), c.tokens.end());
        CHECK(tokens == whole.tokens);
        CHECK(std::equal(c.logprobs.begin(), c.logprobs.end(),
                         whole.logprobs.begin() + static_cast<std::ptrdiff_t>(at)));
        CHECK(c.text == whole.text);
        CHECK(c.stopped == whole.stopped);
      }
    }
  }
}

TEST_CASE("expressions and grammars that would take minutes are refused, with their length") {
  const auto refused = [](const GrammarChoice& given) {
    try {
      grammar_spec(given, "--json-schema", "--regex", "--grammar");
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string file =
      temporary_directory() + "/temper-grammar-" + std::to_string(::getpid()) + ".gbnf";
  const auto grammar = [&](size_t bytes) {
    write_file_atomic(file, "root ::= \"" + std::string(bytes - 11, 'a') + "\"");
    const std::string why = refused({.grammar = file});
    ::unlink(file.c_str());
    return why;
  };
  CHECK(refused({.regex = std::string(16384, 'a')}).empty());
  CHECK(refused({.regex = std::string(16385, 'a')})
            .starts_with("--regex: found 16385 bytes, expected at most 16384"));
  CHECK(grammar(65536).empty());
  CHECK(grammar(65537).starts_with("--grammar " + file +
                                   ": found 65537 bytes, expected at most 65536"));
}
