// The engine's bookkeeping under random workloads, and what the sampler keeps.
#include "temper/generate/engine.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <omp.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/models/files/load.h"
#include "tests/generate/tiny.h"

using namespace temper;
using namespace temper::generate;

namespace {

constexpr int32_t kTinyVocabulary = 61;

std::unique_ptr<models::CausalLM> tiny_model() {
  return generate::tiny::model(kTinyVocabulary, {5, 9});
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

// Cancels some requests at some time: each of their samples is reported once, as what it would have
// been or as its beginning; the others are what they are.
void check_cancelled(Engine& engine, const std::vector<Request>& requests, const Results& expected,
                     std::mt19937& random) {
  std::map<RequestId, int> cancel_after;  // steps
  for (const Request& r : requests) {
    const RequestId id = engine.submit(r);
    if (random() % 2 == 0) cancel_after[id] = static_cast<int>(random() % 30);
  }
  std::map<std::pair<int64_t, int64_t>, int> reports;
  const Callbacks callbacks{[&](Completion c) {
                              engine.check_invariants();
                              ++reports[{c.index, c.sample}];
                              const std::vector<int32_t>& whole = expected.at({c.index, c.sample});
                              CHECK(c.tokens.size() <= whole.size());
                              CHECK(std::equal(c.tokens.begin(), c.tokens.end(), whole.begin()));
                              CHECK((c.tokens.size() == whole.size() || c.cancelled));
                              CHECK((!c.cancelled || cancel_after.contains(c.request)));
                            },
                            {}};
  bool more = true;
  for (int step = 0; more; ++step) {
    for (const auto& [id, when] : cancel_after)
      if (when == step) engine.cancel(id);
    more = engine.step(callbacks);
    engine.check_invariants();
  }
  CHECK(reports.size() == expected.size());
  for (const auto& [sample, count] : reports) CHECK(count == 1);
}

// Requests that other threads submit while this one steps, each with callbacks of its own.
void check_from_threads(Engine& engine, const std::vector<Request>& requests,
                        const Results& expected) {
  Results found;
  std::atomic<int> submitting{3};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = t; i < requests.size(); i += 3) {
        engine.submit(requests[i],
                      {[&](Completion c) { found[{c.index, c.sample}] = c.tokens; }, {}});
        engine.cancel(
            engine.submit({99, {1, 2, 3}, 2, requests[i].options}, {[](Completion) {}, {}}));
      }
      --submitting;
    });
  const Callbacks none{[](Completion) { FAIL("reported to the wrong place"); }, {}};
  while (engine.step(none) || submitting > 0) engine.wait(std::chrono::milliseconds(1));
  for (std::thread& thread : threads) thread.join();
  while (engine.step(none)) {
  }
  engine.check_invariants();
  CHECK(found == expected);
}

}  // namespace

TEST_CASE(
    "random workloads in the smallest cache: no page is lost, nothing runs dry, no token changes") {
  omp_set_num_threads(1);
  const auto model = tiny_model();
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
        b.push_back(static_cast<int32_t>(below(kTinyVocabulary)));
    GenerationOptions options;
    options.sampling.seed = static_cast<uint64_t>(trial);
    options.max_new_tokens = 1 + below(3 * ops::page_tokens());
    std::vector<Request> requests;
    int64_t longest = 0;
    for (int64_t r = 0; r < 12; ++r) {
      std::vector<int32_t> prompt = beginnings[static_cast<size_t>(below(3))];
      for (int64_t i = below(2 * ops::page_tokens()); i >= 0; --i)
        prompt.push_back(static_cast<int32_t>(below(kTinyVocabulary)));
      longest = std::max(longest, static_cast<int64_t>(prompt.size()));
      requests.push_back({r, std::move(prompt), 1 + below(3), options});
    }
    Engine wide(*model, {.speculative = 0});
    const Results expected = results(wide, requests);
    const int64_t least = pages_for(longest, ops::page_tokens()) +
                          pages_for(longest + options.max_new_tokens, ops::page_tokens());
    for (const int64_t pages : {least, least + 3, 3 * least}) {
      CAPTURE(pages);
      EngineOptions narrow;
      narrow.cache_bytes = pages * page;
      narrow.max_batch = 1 + below(8);
      narrow.prefill_tokens = 1 + below(40);
      narrow.speculative = below(8) - 1;
      Engine engine(*model, narrow);
      for (int call = 0; call < 3; ++call) CHECK(results(engine, requests) == expected);
      check_cancelled(engine, requests, expected, random);
      check_from_threads(engine, requests, expected);
      engine.release_memory();
      engine.check_invariants();
    }
  }
}

TEST_CASE("what a callback throws leaves the engine fit to go on") {
  omp_set_num_threads(1);
  const auto model = tiny_model();
  GenerationOptions options;
  options.ignore_eos = true;
  options.max_new_tokens = 9;
  Engine engine(*model, {});
  const std::vector<Request> requests{{0, {1, 2, 3}, 2, options}, {1, {4, 5}, 1, options}};
  const Results expected = results(engine, requests);
  for (const Request& r : requests) engine.submit(r);
  int steps = 0;
  Results found;
  const Callbacks callbacks{[&](Completion c) { found[{c.index, c.sample}] = c.tokens; },
                            [&](const Completion&) {
                              if (steps == 4) throw RunError("enough");
                            }};
  bool more = true;
  for (; more; ++steps) {
    if (steps == 4)
      CHECK_THROWS_AS(engine.step(callbacks), RunError);
    else
      more = engine.step(callbacks);
    engine.check_invariants();
  }
  CHECK(found == expected);
}

TEST_CASE("a completion that goes on from its middle is the completion") {
  const auto model = tiny_model();
  Engine engine(*model, {});
  GenerationOptions options;
  options.max_new_tokens = 12;
  options.ignore_eos = true;
  const std::vector<int32_t> prompt{3, 1, 4, 15, 9, 26};
  const Results whole = results(engine, {{7, prompt, 3, options}});
  for (const int64_t at : {1, 5, 11}) {
    std::vector<Request> requests;
    for (const auto& [name, tokens] : whole) {
      Request rest{7, prompt, 1, options};
      rest.prompt.insert(rest.prompt.end(), tokens.begin(), tokens.begin() + at);
      rest.options.max_new_tokens -= at;
      rest.first_sample = name.second;
      rest.position = at;
      requests.push_back(std::move(rest));
    }
    const Results rests = results(engine, requests);
    CHECK(rests.size() == whole.size());
    for (const auto& [name, tokens] : whole)
      CHECK((rests.at(name) == std::vector<int32_t>(tokens.begin() + at, tokens.end())));
  }
}

TEST_CASE("each of several ranks on a machine takes its share of the memory for keys and values") {
  const auto model = tiny_model();
  GenerationOptions options;
  const auto fits = [&](int ranks, int64_t new_tokens) {
    options.max_new_tokens = new_tokens;
    Engine engine(*model, {.local_ranks = ranks});
    try {
      engine.submit({0, {1}, 1, options});
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  };
  const int64_t page = PageCache(*model, 0).page_bytes();
  const int64_t quarter = usable_memory_bytes() / 4 / page * ops::page_tokens();
  const int ranks =
      static_cast<int>(quarter / kMostNewTokens) + 1;  // a share that a request can exceed
  CHECK(fits(ranks, quarter / ranks - 4 * ops::page_tokens()));
  CHECK(!fits(2 * ranks, quarter / ranks - 4 * ops::page_tokens()));
  ::setenv("LOCAL_WORLD_SIZE", std::to_string(2 * ranks).c_str(), 1);
  CHECK(!fits(0, quarter / ranks - 4 * ops::page_tokens()));
  ::unsetenv("LOCAL_WORLD_SIZE");
}

TEST_CASE("a short prompt does not wait until a long one before it has gone through the model") {
  const auto model = tiny_model();
  const auto prompt = [](int64_t length) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(10 + i * i % 50));
    return ids;
  };
  GenerationOptions options;
  options.max_new_tokens = 1;
  const std::vector<Request> requests{
      {0, prompt(200), 1, options}, {1, prompt(8), 1, options}, {2, prompt(9), 1, options}};
  Engine one_after_the_other(*model, {.prefill_tokens = 1000});
  const Results expected = results(one_after_the_other, requests);
  Engine engine(*model, {.prefill_tokens = 20});
  for (const Request& r : requests) engine.submit(r);
  std::vector<int64_t> order;
  Results found;
  int steps = 0, before_short = 0;
  const auto done = [&](Completion c) {
    if (c.index == 1) before_short = steps;
    order.push_back(c.index);
    found[{c.index, c.sample}] = c.tokens;
  };
  while (engine.step({.done = done, .on_token = {}})) ++steps;
  CHECK(order == std::vector<int64_t>{1, 2, 0});
  CHECK(before_short == 0);
  CHECK(steps <= 12);  // the long one has what the others leave
  CHECK(found == expected);
}

TEST_CASE("a client that asks for everything leaves room for another, and changes nothing of it") {
  const auto model = tiny_model();
  GenerationOptions long_ones, short_one;
  long_ones.max_new_tokens = 200;
  long_ones.ignore_eos = short_one.ignore_eos = true;
  short_one.max_new_tokens = 4;
  const Request greedy{
      .index = 0, .prompt = {1, 2, 3}, .num_samples = 60, .options = long_ones, .client = 1},
      other{.index = 1, .prompt = {4, 5}, .num_samples = 3, .options = short_one, .client = 2};
  Engine alone(*model, {.max_batch = 8});
  const Results expected = results(alone, {other});
  Engine engine(*model, {.max_batch = 8});
  int64_t steps = 0, greedy_done = 0, other_done = 0, before_other = 0;
  Results found;
  const auto done = [&](Completion c) {
    if (c.index == 0) ++greedy_done;
    if (c.index != 1) return;
    ++other_done;
    before_other = greedy_done;
    found[{c.index, c.sample}] = c.tokens;
  };
  const Callbacks callbacks{.done = done, .on_token = {}};
  engine.submit(greedy);
  engine.submit(greedy);
  for (; steps < 5; ++steps) engine.step(callbacks);
  engine.submit(other);
  while (other_done < 3 && engine.step(callbacks)) engine.check_invariants();
  CHECK(other_done == 3);
  CHECK(before_other == 0);
  CHECK(found == expected);
  while (engine.step(callbacks)) {
  }
  engine.check_invariants();
  CHECK(greedy_done == 120);
}

TEST_CASE("pages are evicted in the order of their last use, and none before those after it") {
  PrefixTree tree(2);
  const std::vector<int32_t> a{1, 2, 3, 4, 5, 6}, b{1, 2, 7, 8};
  const auto at = [](const std::vector<int32_t>& tokens, size_t i) {
    return std::span(tokens).subspan(2 * i, 2);
  };
  CHECK(tree.insert(PrefixTree::root(0), at(a, 0), 0) == 0);
  CHECK(tree.insert(0, at(a, 1), 1) == 1);
  CHECK(tree.insert(1, at(a, 2), 2) == 2);
  CHECK(tree.insert(PrefixTree::root(0), at(b, 0), 3) == 0);  // known already
  CHECK(tree.insert(0, at(b, 1), 4) == 4);
  CHECK(!tree.contains(3));
  CHECK(tree.evict() == -1);
  for (const int64_t page : {2, 1, 4}) tree.set_unused(page);
  tree.set_in_use(1);  // used again, with what goes before it
  tree.set_unused(1);
  tree.set_unused(0);
  tree.check_invariants(std::vector<bool>(5));
  const std::vector<int32_t> longer{1, 2, 3, 4, 5, 6, 9};
  CHECK(tree.find(PrefixTree::root(0), longer) == std::vector<int64_t>{0, 1, 2});
  CHECK(tree.find(PrefixTree::root(1), longer).empty());  // another adapter's keys are others
  for (const int64_t page : {2, 4, 1, 0}) CHECK(tree.evict() == page);
  CHECK(tree.evict() == -1);
  CHECK(tree.find(PrefixTree::root(0), longer).empty());
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
      ++count[choose({.top_k = top_k, .seed = 1}, {i, 0, 0}, row, {})];
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
    return choose({.temperature = 0, .repetition_penalty = penalty}, {0, 0, 0}, row,
                  {.prompt = prompt, .completion = completion});
  };
  CHECK(greedy(1, {0}, {}) == 0);
  CHECK(greedy(1.2, {0}, {0, 0}) == 1);
  CHECK(greedy(1.02, {0, 0}, {0}) == 0);  // three times would be enough, once is not
  CHECK(greedy(10, {0}, {1}) == 0);
  CHECK(greedy(100, {2}, {0, 1}) == 0);
}

TEST_CASE("logits that are not finite cost the request that has them, and no other") {
  constexpr int32_t kBad = 17;
  auto model = tiny::model(kTinyVocabulary, {5, 9}, false);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    GenerationOptions options;
    options.sampling.seed = 4;
    options.max_new_tokens = 12;
    options.sampling.logit_bias = {{kBad, -50.0F}};  // only a prompt has it
    requests.push_back({i, {1 + i, 2, 3, 4, 6, 7 + i}, 2, options});
  }
  EngineOptions few;
  few.cache_bytes = 1 << 20;
  Results expected;
  {
    Engine engine(*model, few);
    expected = results(engine, requests);
  }
  model->each_parameter([](const std::string& name, nn::Parameter& parameter) {
    if (name.find("embed_tokens") == std::string::npos) return;
    at::Tensor table = parameter.value().detach().clone();
    table[kBad].fill_(std::numeric_limits<float>::quiet_NaN());
    parameter.set_value(table);
  });
  Engine engine(*model, few);
  Results found;
  std::map<int64_t, int> failures;
  const Callbacks callbacks{
      .done = [&](Completion c) { found[{c.index, c.sample}] = c.tokens; },
      .on_token = {},
      .failed =
          [&](const Completion& c, const std::string& why) {
            ++failures[c.index];
            CHECK(why.starts_with(str("row ", c.index, ", sample ", c.sample, ": ")));
            CHECK(why.find("not finite") != std::string::npos);
          }};
  const auto run = [&] {
    while (engine.step(callbacks)) engine.check_invariants();
  };
  // Beside good ones, before them, and in the pages that they use afterwards.
  for (int round = 0; round < 3; ++round) {
    found.clear();
    failures.clear();
    Request bad = requests[0];
    bad.index = 50 + round;
    bad.prompt = {1, 2, kBad, 4};
    Request scored = bad;
    scored.index = 60 + round;
    scored.options.prompt_logprobs = true;
    engine.submit(bad);
    if (round == 1) run();
    for (const Request& r : requests) engine.submit(r);
    engine.submit(scored);
    run();
    CHECK(found == expected);
    CHECK(failures == std::map<int64_t, int>{{50 + round, 2}, {60 + round, 2}});
  }
  // Who does not ask for failures gets them as errors; the engine is fit to go on.
  Request bad = requests[0];
  bad.prompt = {kBad};
  engine.submit(bad);
  CHECK_THROWS_WITH_AS(engine.run([](Completion) {}), doctest::Contains("row 0"), RunError);
  engine.check_invariants();
  CHECK(results(engine, requests) == expected);
}
