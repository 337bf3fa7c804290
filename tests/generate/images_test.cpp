// Prompts with images: sampling, scoring, chunks of prompts and known prefixes give the bits of
// training.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>
#include <omp.h>

#include <map>

#include "temper/generate/beams.h"
#include "temper/generate/engine.h"
#include "temper/generate/score.h"
#include "tests/vision_golden.h"

using namespace temper;
using namespace temper::generate;
using vision_golden::Golden;

namespace {

using Answers =
    std::map<std::pair<int64_t, int64_t>, std::pair<std::vector<int32_t>, std::vector<float>>>;

Answers answer(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& r : requests) engine.submit(r);
  Answers out;
  engine.run([&](Completion c) {
    engine.check_invariants();
    out[{c.index, c.sample}] = {c.tokens, c.logprobs};
  });
  return out;
}

// What training computes of the completion: the prompt is a root, the completion its child.
std::vector<float> trained(models::CausalLM& model, const Request& request,
                           const std::vector<int32_t>& completion, double temperature) {
  const at::NoGradGuard no_grad;
  auto forest = std::make_shared<Forest>();
  const int64_t prompt = forest->add_root(request.prompt, 0, request.rows);
  forest->add_child(prompt, completion);
  std::vector<int64_t> rows, target;
  for (size_t i = 0; i < completion.size(); ++i) {
    rows.push_back(std::ssize(request.prompt) + static_cast<int64_t>(i) - 1);
    target.push_back(completion[i]);
  }
  const at::Tensor logp =
      model
          .token_logp(model.forward({.forest = forest}), rows, target, {.temperature = temperature})
          .logp;
  return {logp.const_data_ptr<float>(), logp.const_data_ptr<float>() + logp.numel()};
}

}  // namespace

TEST_CASE("prompts with images are sampled from and scored to the bits of training") {
  omp_set_num_threads(1);
  for (const std::string& name : vision_golden::names()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = models::load_model(golden.directory);
    models::Encoder encoder(models::load_tower(golden.directory));
    std::vector<Request> requests;
    for (int64_t r = 0; r < golden.num_rows(); ++r) {
      GenerationOptions options;
      options.sampling = {.temperature = 0.8, .seed = 4};
      options.max_new_tokens = 9;
      options.ignore_eos = true;
      requests.push_back({r, golden.tokens(r), 2, options});
      requests.back().rows = golden.rows(r, encoder);
    }
    Engine plain(*model, {});
    const Answers expected = answer(plain, requests);
    const int64_t page = PageCache(*model, 0).page_bytes(),
                  state = PageCache(*model, 0).state_bytes();
    for (const EngineOptions& options :
         {EngineOptions(), EngineOptions{.max_batch = 2, .prefill_tokens = 4},
          EngineOptions{.max_batch = 3, .prefill_tokens = 1},
          EngineOptions{.max_batch = 1, .cache_bytes = 16 * page + 3 * state, .speculative = 0}}) {
      Engine engine(*model, options);
      CHECK((answer(engine, requests) == expected));
      CHECK((answer(engine, requests) == expected));  // from known pages
    }
    std::vector<ScoreRequest> scored;
    for (const Request& r : requests) {
      const auto& [tokens, logprobs] = expected.at({r.index, 1});
      CHECK(trained(*model, r, tokens, 0.8) == logprobs);
      std::vector<int32_t> whole = r.prompt;
      whole.insert(whole.end(), tokens.begin(), tokens.end());
      scored.push_back({whole, r.prompt.size(), 0, r.rows});
    }
    const std::vector<ScoreResult> scores = score(*model, scored, 0.8);
    for (size_t i = 0; i < scores.size(); ++i)
      CHECK(scores[i].logprobs == expected.at({static_cast<int64_t>(i), 1}).second);
    // The images count: without them the answers are others.
    Request blind = requests[0];
    blind.rows.clear();
    Engine other(*model, {});
    CHECK((answer(other, {blind}).at({0, 0}) != expected.at({0, 0})));
  }
}

TEST_CASE("sequences behind images share pages, and draft no other bits") {
  omp_set_num_threads(1);
  for (const std::string& name : vision_golden::names()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = models::load_model(golden.directory);
    models::Encoder encoder(models::load_tower(golden.directory));
    // A long prompt: an image, text over several pages, the image again.
    const std::vector<int32_t> row = golden.tokens(3);
    std::vector<ExternalRows> rows = golden.rows(3, encoder);
    std::vector<int32_t> tokens = row;
    for (int32_t i = 0; i < 60; ++i) tokens.push_back(10 + i * i % 50);
    const int64_t second = std::ssize(tokens);
    tokens.insert(tokens.end(), row.begin(), row.end());
    const size_t of_image = rows.size();
    for (size_t i = 0; i < of_image; ++i) rows.emplace_back(rows[i]).begin += second;
    GenerationOptions options;
    options.sampling = {.temperature = 0.7, .seed = 5};
    options.max_new_tokens = 20;
    options.ignore_eos = true;
    Request request{0, tokens, 3, options};
    request.rows = rows;
    Request shorter = request;
    shorter.index = 1;
    shorter.prompt.resize(shorter.prompt.size() - 3);
    // Sequences whose layers have states cannot go back, so that they draft nothing.
    const bool drafts = PageCache(*model, 0).state_bytes() == 0;
    Engine engine(*model, {.prefill_tokens = 24, .speculative = drafts ? 4 : 0}),
        alone(*model, {.speculative = 0});
    const Answers first = answer(engine, {request});
    CHECK((first == answer(alone, {request})));
    const int64_t before = engine.statistics().reused_tokens;
    const Answers again = answer(engine, {shorter});
    CHECK(engine.statistics().reused_tokens > before + 32);
    Engine fresh(*model, {});
    CHECK((again == answer(fresh, {shorter})));
    for (int64_t sample = 0; sample < 3; ++sample) {
      const auto& [drawn, logprobs] = first.at({0, sample});
      CHECK(trained(*model, request, drawn, 0.7) == logprobs);
    }
  }
}

TEST_CASE("tokens that stand for images are never sampled, and count in log-probabilities") {
  omp_set_num_threads(1);
  const Golden golden("qwen3_vl");
  const auto model = models::load_model(golden.directory);
  models::Encoder encoder(models::load_tower(golden.directory));
  const std::vector<int32_t> marks = model->image_marks.ids;
  REQUIRE(marks.size() == 1);
  std::vector<Request> requests;
  for (const SamplingOptions& sampling :
       {SamplingOptions{.temperature = 0}, SamplingOptions{.temperature = 2, .seed = 1},
        SamplingOptions{.temperature = 2, .top_k = 30, .top_p = 0.9, .seed = 2},
        SamplingOptions{.temperature = 2, .repetition_penalty = 1.1, .seed = 3}}) {
    GenerationOptions options{.sampling = sampling, .max_new_tokens = 20, .ignore_eos = true};
    options.sampling.logit_bias = {{marks[0], 1e4f}};
    options.top_logprobs = model->vocab_size;
    if (sampling.top_k > 0) options.sampling.logit_bias.clear();
    requests.push_back({std::ssize(requests), golden.tokens(0), 8, options});
    requests.back().rows = golden.rows(0, encoder);
  }
  const auto count = [&](const std::vector<int32_t>& tokens) {
    return std::count(tokens.begin(), tokens.end(), marks[0]);
  };
  Engine engine(*model, {});
  for (const Request& r : requests) engine.submit(r);
  engine.run([&](const Completion& c) {
    CHECK(count(c.tokens) == 0);
    const Request& r = requests.at(static_cast<size_t>(c.index));
    const double temperature = r.options.sampling.temperature;
    CHECK(trained(*model, r, c.tokens, temperature == 0 ? 1 : temperature) == c.logprobs);
    for (const TopLogprobs& top : c.top_logprobs) {
      double mass = 0;
      for (const auto& [id, logprob] : top) mass += std::exp(static_cast<double>(logprob));
      CHECK(mass == doctest::Approx(1).epsilon(1e-4));
    }
  });
  GenerationOptions options{.sampling = {.temperature = 0}, .max_new_tokens = 6};
  options.ignore_eos = true;
  options.sampling.logit_bias = {{marks[0], 1e4f}};
  const auto of_beams = [&] {
    int64_t found = 0;
    beam_search(*model, {golden.tokens(0)}, 3, options, {.beams = 3},
                [&](const Completion& c) { found += count(c.tokens); });
    return found;
  };
  CHECK(of_beams() == 0);
  model->image_marks = {};
  CHECK(of_beams() > 0);
  Engine free(*model, {});
  const Answers biased = answer(free, {requests[0]});
  CHECK(count(biased.at({0, 0}).first) > 0);
}
