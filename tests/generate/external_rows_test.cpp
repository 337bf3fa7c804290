// Prompts with rows in place of tokens' embeddings: sampling, scoring and the prefix cache.
#include "tests/external_rows.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <omp.h>

#include <map>

#include "temper/base/error.h"
#include "temper/generate/engine.h"
#include "temper/generate/score.h"
#include "temper/models/files/load.h"
#include "tests/models/golden.h"

using namespace temper;
using namespace temper::generate;
using external_rows::replaced;

namespace {

using SampledTokens =
    std::map<std::pair<int64_t, int64_t>, std::pair<std::vector<int32_t>,  // tokens
                                                    std::vector<float>>>;

std::vector<int32_t> some_tokens(int64_t count, int64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(3 + (i * i * 7 + seed * 13 + i) % 55));
  return tokens;
}

GenerationOptions sampled(int64_t tokens) {
  GenerationOptions options;
  options.sampling = {.temperature = 0.8, .seed = 4};
  options.max_new_tokens = tokens;
  options.ignore_eos = true;
  return options;
}

SampledTokens sample(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& r : requests) engine.submit(r);
  SampledTokens out;
  engine.run([&](Completion c) {
    engine.check_invariants();
    out[{c.index, c.sample}] = {c.tokens, c.logprobs};
  });
  return out;
}

// The lengths reach over pages, chunks of prompts and windows; the second prompt goes on as the
// first, and the last one is all rows.
struct Prompts {
  std::vector<Request> plain, external;

  explicit Prompts(models::CausalLM& model) {
    const std::vector<int32_t> first = some_tokens(75, 1);
    std::vector<int32_t> longer = first;
    for (const int32_t t : some_tokens(9, 2)) longer.push_back(t);
    add(model, first, 3, 61, "a");
    add(model, longer, 3, 61, "a");
    add(model, some_tokens(40, 3), 37, 40, "b");
    add(model, some_tokens(18, 4), 0, 18, "c");
  }
  void add(models::CausalLM& model, const std::vector<int32_t>& tokens, int64_t begin, int64_t end,
           const std::string& digest) {
    const auto index = static_cast<int64_t>(plain.size());
    plain.push_back({index, tokens, 3, sampled(12)});
    external_rows::Row row = replaced(model, tokens, begin, end, digest);
    external.push_back({index, row.tokens, 3, sampled(12)});
    external.back().rows = row.rows;
  }
};

}  // namespace

TEST_CASE("rows that are embeddings are sampled from and scored to the bits of their tokens") {
  omp_set_num_threads(1);
  for (const std::string& name : external_rows::kModels) {
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name));
    const Prompts prompts(*model);
    Engine plain(*model, {});
    const SampledTokens expected = sample(plain, prompts.plain);
    REQUIRE(expected.size() == 12);
    const int64_t page = PageCache(*model, 0).page_bytes(),
                  state = PageCache(*model, 0).state_bytes();
    for (const EngineOptions& options :
         {EngineOptions(), EngineOptions{.max_batch = 2, .prefill_tokens = 16},
          // Room for one sequence at a time: pages of earlier ones are evicted.
          EngineOptions{.max_batch = 1, .cache_bytes = 16 * page + 3 * state, .speculative = 0}}) {
      CAPTURE(options.max_batch);
      Engine engine(*model, options), like(*model, options);
      CHECK((sample(engine, prompts.external) == expected));
      // Once more, from the pages that were made known.
      CHECK((sample(engine, prompts.external) == expected));
      sample(like, prompts.plain);
      sample(like, prompts.plain);
      CHECK(engine.statistics().reused_tokens == like.statistics().reused_tokens);
      if (options.cache_bytes == 0) CHECK(engine.statistics().reused_tokens > 0);
    }
    std::vector<ScoreRequest> scored;
    for (const Request& r : prompts.external) {
      std::vector<int32_t> tokens = r.prompt;
      const auto& sampled = expected.at({r.index, 1}).first;
      tokens.insert(tokens.end(), sampled.begin(), sampled.end());
      scored.push_back({tokens, r.prompt.size(), 0, r.rows});
    }
    const std::vector<ScoreResult> scores = score(*model, scored, 0.8);
    for (size_t i = 0; i < scores.size(); ++i)
      CHECK(scores[i].logprobs == expected.at({static_cast<int64_t>(i), 1}).second);
  }
}

TEST_CASE("a completion that was interrupted goes on behind its rows") {
  omp_set_num_threads(1);
  for (const std::string& name : external_rows::kModels) {
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name));
    const Prompts prompts(*model);
    Engine whole(*model, {}), rest(*model, {});
    Request request = prompts.external[0];
    const auto [tokens, logprobs] = sample(whole, {request}).at({0, 2});
    request.first_sample = 2;
    request.num_samples = 1;
    request.begun = request.position = 5;
    request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.begin() + 5);
    request.options.max_new_tokens -= 5;
    const auto [more, of_more] = sample(rest, {request}).at({0, 2});
    CHECK(more == std::vector<int32_t>(tokens.begin() + 5, tokens.end()));
    CHECK(of_more == std::vector<float>(logprobs.begin() + 5, logprobs.end()));
  }
}

TEST_CASE("prompts with the same placeholders share pages exactly where their digests are equal") {
  omp_set_num_threads(1);
  for (const char* name : {"llama", "lfm2"}) {
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name));
    const std::vector<int32_t> one = some_tokens(75, 1), other = some_tokens(75, 6);
    std::vector<int32_t> mixed = one;
    std::copy(other.begin() + 3, other.begin() + 61, mixed.begin() + 3);
    const external_rows::Row a = replaced(*model, one, 3, 61, "a"),
                             b = replaced(*model, mixed, 3, 61, "b");
    REQUIRE(a.tokens == b.tokens);
    const auto request = [&](const external_rows::Row& row) {
      Request r{0, row.tokens, 1, sampled(6)};
      r.rows = row.rows;
      return r;
    };
    Engine alone(*model, {}), plain(*model, {}), both(*model, {});
    const SampledTokens of_a = sample(alone, {request(a)}),
                        of_b = sample(plain, {{0, mixed, 1, sampled(6)}});
    CHECK((of_a != of_b));
    CHECK((sample(both, {request(a)}) == of_a));
    CHECK((sample(both, {request(b)}) == of_b));
    CHECK(both.statistics().reused_tokens == 0);
    CHECK((sample(both, {{0, a.tokens, 1, sampled(6)}}) != of_a));  // the placeholders themselves
    CHECK(both.statistics().reused_tokens == 0);
    CHECK((sample(both, {request(a)}) == of_a));
    CHECK(both.statistics().reused_tokens >= 64);
    CHECK((sample(both, {request(b)}) == of_b));
    CHECK(both.statistics().reused_tokens >= 128);
  }
}

TEST_CASE("a page is known by its tokens, the digests of its rows and their places") {
  PrefixTree tree(2);
  const std::vector<int32_t> tokens{5, 5, 5, 5};
  const auto first = std::span(tokens).first(2);
  const at::Tensor features = at::zeros({9, 1});
  const auto rows = [&](int64_t begin, int64_t count, int64_t from, const std::string& digest) {
    return std::vector<ExternalRows>{{begin, count, features, from, digest}};
  };
  const std::vector<std::vector<ExternalRows>> all{{},
                                                   rows(0, 2, 0, "a"),
                                                   rows(0, 2, 0, "b"),
                                                   rows(0, 2, 1, "a"),
                                                   rows(0, 1, 0, "a"),
                                                   rows(1, 1, 0, "a")};
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const int64_t page = static_cast<int64_t>(i);
    CHECK(tree.find(PrefixTree::root(0), tokens, all[i]).empty());
    CHECK(tree.insert(PrefixTree::root(0), first, page, all[i]) == page);
    CHECK(tree.insert(PrefixTree::root(0), first, 100, all[i]) == page);
    CHECK(tree.find(PrefixTree::root(0), tokens, all[i]) == std::vector<int64_t>{page});
  }
  // Rows of two pages: the second page's are those behind the first's.
  const auto both = rows(0, 4, 0, "a");
  CHECK(tree.insert(1, first, 6, rows(0, 2, 2, "a")) == 6);
  CHECK(tree.find(PrefixTree::root(0), tokens, both) == std::vector<int64_t>{1, 6});
}

TEST_CASE("requests with rows that do not fit are refused before anything runs") {
  const auto model = models::load_model(golden_model("llama"));
  Engine engine(*model, {});
  const auto refused = [&](const ExternalRows& rows, const char* why) {
    Request r{0, some_tokens(10, 1), 1, sampled(2)};
    r.rows = {rows};
    std::string said;
    try {
      engine.submit(r);
    } catch (const RunError& e) {
      said = e.what();
    }
    CAPTURE(said);
    CHECK(said.find(why) != said.npos);
  };
  const at::Tensor features = at::zeros({4, 24});
  refused({8, 4, features, 0, "a"}, "external rows of tokens 8 to 12: expected some from 0 to 10");
  refused({0, 4, features, 1, "a"}, "4 from row 1 on of 4");
  refused({0, 4, features, 0, ""}, "without a digest");
  refused({0, 4, features.to(at::kDouble), 0, "a"}, "expected [R, hidden_size] float32");
  refused({0, 4, {}, 0, "a"}, "expected [R, hidden_size] float32");
  refused({0, 4, at::zeros({4, 23}), 0, "a"}, "rows of 23 numbers, and the model's have 24");
  CHECK(!engine.step({}));
}
