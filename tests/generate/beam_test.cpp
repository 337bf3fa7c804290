// Beam search against transformers': tests/golden/make_beam_goldens.py.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/generate/beams.h"
#include "temper/generate/score.h"
#include "temper/models/files/load.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::generate;

namespace {

GenerationOptions options_of(const Json& given) {
  GenerationOptions o;
  o.max_new_tokens = given.at("max_new_tokens");
  o.min_new_tokens = given.value("min_new_tokens", 0);
  o.sampling.repetition_penalty = given.value("repetition_penalty", 1.0);
  o.sampling.no_repeat_ngram = given.value("no_repeat_ngram_size", 0);
  if (given.contains("sequence_bias"))
    for (const Json& one : given["sequence_bias"])
      o.sampling.logit_bias.emplace_back(one[0][0].get<int32_t>(), one[1].get<float>());
  return o;
}

using Found = std::vector<std::vector<Completion>>;

Found search(models::CausalLM& model, const std::vector<std::vector<int32_t>>& prompts,
             int64_t samples, const GenerationOptions& options, const BeamOptions& beams,
             const EngineOptions& engine = {}) {
  Found out(prompts.size());
  beam_search(
      model, prompts, samples, options, beams,
      [&](Completion c) {
        CHECK(c.sample == static_cast<int64_t>(out[static_cast<size_t>(c.index)].size()));
        out[static_cast<size_t>(c.index)].push_back(std::move(c));
      },
      nullptr, {}, engine);
  return out;
}

}  // namespace

TEST_CASE("beams are transformers'") {
  const Json all = read_json_file(golden_path("beams.json"));
  const auto prompts = all.at("prompts").get<std::vector<std::vector<int32_t>>>();
  for (const Json& test : all.at("cases")) {
    CAPTURE(test.at("model"));
    CAPTURE(test.at("options"));
    const auto model =
        models::load_model(golden_path("models/") + test.at("model").get<std::string>(), {});
    model->eos_token_ids = test.at("ends").get<std::vector<int32_t>>();
    const Json& given = test.at("options");
    const BeamOptions beams{given.at("num_beams"), given.value("length_penalty", 1.0)};
    const int64_t samples = given.at("num_return_sequences");
    const Found found = search(*model, prompts, samples, options_of(given), beams);
    for (size_t p = 0; p < prompts.size(); ++p) {
      const Json& expected = test.at("results")[p];
      REQUIRE(found[p].size() == static_cast<size_t>(samples));
      for (size_t i = 0; i < found[p].size(); ++i) {
        CHECK(found[p][i].tokens == expected["completions"][i].get<std::vector<int32_t>>());
        CHECK(*found[p][i].score ==
              doctest::Approx(expected["scores"][i].get<float>()).epsilon(1e-4));
      }
    }
    // Alone, few at a time, with little memory: the same; and the log-probabilities are score's.
    for (const EngineOptions& engine :
         {EngineOptions{.max_batch = 1}, EngineOptions{.prefill_tokens = 3}}) {
      const Found again = search(*model, prompts, samples, options_of(given), beams, engine);
      for (size_t p = 0; p < prompts.size(); ++p)
        for (size_t i = 0; i < found[p].size(); ++i) {
          CHECK(again[p][i].tokens == found[p][i].tokens);
          CHECK(again[p][i].logprobs == found[p][i].logprobs);
        }
    }
    std::vector<ScoreRequest> rows;
    for (size_t p = 0; p < prompts.size(); ++p)
      for (const Completion& c : found[p]) {
        rows.push_back({prompts[p], prompts[p].size()});
        rows.back().tokens.insert(rows.back().tokens.end(), c.tokens.begin(), c.tokens.end());
      }
    const std::vector<ScoreResult> scores = score(*model, rows);
    size_t row = 0;
    for (const auto& of_prompt : found)
      for (const Completion& c : of_prompt) CHECK(c.logprobs == scores[row++].logprobs);
  }
}

TEST_CASE("one beam is greedy, and what cannot be is said") {
  const auto model = models::load_model(golden_path("models/qwen3"), {});
  model->eos_token_ids = {};
  const std::vector<std::vector<int32_t>> prompts{{3, 14, 15}, {9, 9}};
  GenerationOptions options;
  options.max_new_tokens = 10;
  const Found found = search(*model, prompts, 1, options, {.beams = 1});
  options.sampling.temperature = 0;
  generate::generate(*model, prompts, 1, options, [&](Completion c) {
    CHECK(c.tokens == found[static_cast<size_t>(c.index)][0].tokens);
    CHECK(c.logprobs == found[static_cast<size_t>(c.index)][0].logprobs);
  });
  CHECK_THROWS_AS(search(*model, prompts, 3, options, {.beams = 2}), ConfigError);
  CHECK_THROWS_AS(search(*model, prompts, 1, options, {.beams = 2}, {.cache_bytes = 10000}),
                  ConfigError);
  options.sampling.temperature = 0.5;
  CHECK_THROWS_WITH_AS(search(*model, prompts, 1, options, {.beams = 2}),
                       doctest::Contains("temperature does not apply, found 0.5"), ConfigError);
  options.sampling.temperature = 1;
  options.sampling.top_k = 3;
  CHECK_THROWS_AS(search(*model, prompts, 1, options, {.beams = 2}), ConfigError);
}
