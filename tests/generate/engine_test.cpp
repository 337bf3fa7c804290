// The engine's bookkeeping under random workloads, and what the sampler keeps.
#include "temper/generate/engine.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "temper/base/json.h"
#include "temper/models/load.h"

using namespace temper;
using namespace temper::generate;

namespace {

constexpr int32_t kVocabulary = 61;

std::unique_ptr<models::CausalLM> tiny() {
  const Json config = {{"model_type", "qwen3"},
                       {"vocab_size", kVocabulary},
                       {"hidden_size", 16},
                       {"intermediate_size", 24},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 2},
                       {"num_key_value_heads", 1},
                       {"head_dim", 8},
                       {"max_position_embeddings", 512},
                       {"initializer_range", 0.3},
                       {"tie_word_embeddings", true}};
  auto model = models::init_model(models::HfConfig::parse(config, "test"), 3);
  model->eos_token_ids = {5, 9};
  return model;
}

using Results = std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>>;

Results results(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& r : requests) engine.submit(r);
  Results out;
  engine.run([&](Completion c) {
    engine.check_invariants();
    out[{c.index, c.sample}] = c.tokens;
  });
  engine.check_invariants();
  return out;
}

}  // namespace

TEST_CASE(
    "random workloads in the smallest cache: no page is lost, nothing runs dry, no token changes") {
  omp_set_num_threads(1);
  const auto model = tiny();
  const int64_t page = PageCache(*model, 0).page_bytes();
  std::mt19937 random(7);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(n));
  };
  for (int trial = 0; trial < 25; ++trial) {
    CAPTURE(trial);
    // Prompts that begin alike in whole pages, in parts of pages, or not at all.
    std::vector<std::vector<int32_t>> beginnings(3);
    for (auto& b : beginnings)
      for (int64_t i = below(3 * ops::page_tokens()); i >= 0; --i)
        b.push_back(static_cast<int32_t>(below(kVocabulary)));
    EngineOptions options;
    options.sampling.seed = static_cast<uint64_t>(trial);
    options.max_new_tokens = 1 + below(3 * ops::page_tokens());
    std::vector<Request> requests;
    int64_t longest = 0;
    for (int64_t r = 0; r < 12; ++r) {
      std::vector<int32_t> prompt = beginnings[static_cast<size_t>(below(3))];
      for (int64_t i = below(2 * ops::page_tokens()); i >= 0; --i)
        prompt.push_back(static_cast<int32_t>(below(kVocabulary)));
      longest = std::max(longest, static_cast<int64_t>(prompt.size()));
      requests.push_back({r, std::move(prompt), 1 + below(3)});
    }
    Engine wide(*model, options);
    const Results expected = results(wide, requests);
    const int64_t least =
        PageCache::pages_for(longest) + PageCache::pages_for(longest + options.max_new_tokens);
    for (const int64_t pages : {least, least + 3, 3 * least}) {
      CAPTURE(pages);
      EngineOptions narrow = options;
      narrow.cache_bytes = pages * page;
      narrow.max_batch = 1 + below(8);
      narrow.prefill_tokens = 1 + below(40);
      Engine engine(*model, narrow);
      for (int call = 0; call < 3; ++call) CHECK(results(engine, requests) == expected);
      engine.release_memory();
      engine.check_invariants();
    }
  }
}

TEST_CASE("filters keep what transformers' do, in its order") {
  const std::vector<float> logits{std::log(0.4f), std::log(0.3f), std::log(0.15f), std::log(0.1f),
                                  std::log(0.05f)};
  const auto kept = [&](SamplingOptions o) { return candidates(o, logits.data(), 5).ids; };
  using Ids = std::vector<int32_t>;
  CHECK(kept({.top_k = 2}) == Ids{0, 1});
  CHECK(kept({.top_p = 0.65}) == Ids{0, 1});
  CHECK(kept({.top_p = 0.75}) == Ids{0, 1, 2});
  CHECK(kept({.top_p = 0.01}) == Ids{0});
  CHECK(kept({.min_p = 0.3}) == Ids{0, 1, 2});
  CHECK(kept({.top_k = 3, .top_p = 0.8}) ==
        Ids{0, 1});  // the mass of what top-k left: 0.4 + 0.3 of 0.85
  CHECK(kept({.top_k = 50}) == Ids{0, 1, 2, 3, 4});
}

TEST_CASE("sampled frequencies are the probabilities, with and without filters") {
  std::vector<float> logits(1500, -40.0f);  // three blocks
  logits[3] = std::log(0.5f);
  logits[700] = std::log(0.3f);
  logits[1400] = std::log(0.2f);
  std::vector<float> block_max, block_sum;
  for (size_t b = 0; b < 1500; b += ops::kLogitsBlock) {
    float max = -1e30f, sum = 0;
    for (size_t i = b; i < std::min<size_t>(1500, b + ops::kLogitsBlock); ++i)
      max = std::max(max, logits[i]);
    for (size_t i = b; i < std::min<size_t>(1500, b + ops::kLogitsBlock); ++i)
      sum += std::exp(logits[i] - max);
    block_max.push_back(max);
    block_sum.push_back(sum);
  }
  const LogitsRow row{logits.data(), 1500, block_max.data(), block_sum.data()};
  for (const int64_t top_k : {0, 100}) {
    std::map<int32_t, int> count;
    constexpr int kDraws = 20000;
    for (uint64_t i = 0; i < kDraws; ++i)
      ++count[choose({.top_k = top_k, .seed = 1}, {i, 0, 0}, row, {}, {})];
    CHECK(count[3] / double{kDraws} == doctest::Approx(0.5).epsilon(0.03));
    CHECK(count[700] / double{kDraws} == doctest::Approx(0.3).epsilon(0.04));
    CHECK(count[1400] / double{kDraws} == doctest::Approx(0.2).epsilon(0.05));
    CHECK(count.size() == 3);
  }
}

TEST_CASE(
    "the repetition penalty divides what is positive, multiplies what is negative, once a token") {
  const std::vector<float> logits{2.0f, 1.9f, -1.0f, -1.5f};
  const float max = 2.0f, sum = 1;
  const LogitsRow row{logits.data(), 4, &max, &sum};
  const auto greedy = [&](double penalty, std::vector<int32_t> prompt,
                          std::vector<int32_t> completion) {
    return choose({.temperature = 0, .repetition_penalty = penalty}, {0, 0, 0}, row, prompt,
                  completion);
  };
  CHECK(greedy(1, {0}, {}) == 0);
  CHECK(greedy(1.2, {0}, {0, 0}) == 1);
  CHECK(greedy(1.02, {0, 0}, {0}) == 0);  // three times would be enough, once is not
  CHECK(greedy(10, {0}, {1}) == 0);
  CHECK(greedy(100, {2}, {0, 1}) == 0);
}
