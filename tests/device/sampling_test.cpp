// Sampling on a device: the tokens of the processor's, chosen where the logits are.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/generate/engine.h"
#include "temper/models/device.h"
#include "temper/ops/backend.h"
#include "tests/device/pretend_device.h"
#include "tests/generate/tiny.h"

namespace temper::generate {
namespace {

constexpr int64_t kVocabulary = 1300;

using Completions = std::map<std::pair<int64_t, int64_t>, Completion>;

std::vector<std::vector<int32_t>> prompts() {
  std::vector<std::vector<int32_t>> out;
  for (int32_t p = 0; p < 5; ++p) {
    out.emplace_back();
    for (int32_t i = 0; i < 3 + 7 * p; ++i) out.back().push_back((31 * p + 17 * i) % kVocabulary);
  }
  return out;
}

struct Sampled {
  Completions completions;
  pretend::Counts before, after;  // the steps that only decode
  int64_t steps = 0;
};

// The same model wherever it computes.
std::unique_ptr<models::CausalLM> on_chosen_device() {
  const auto made = tiny::model(kVocabulary, {});
  std::map<std::string, at::Tensor> values;
  made->each_parameter(
      [&](const std::string& name, nn::Parameter& p) { values[name] = p.value(); });
  auto model = models::make_model(tiny::config(kVocabulary));
  models::set_storage(*model, {});
  model->each_parameter(
      [&](const std::string& name, nn::Parameter& p) { p.set_value(values.at(name).detach()); });
  return model;
}

Sampled sampled(const char* device, const std::vector<GenerationOptions>& options) {
  models::use_device({.device = device, .backend = "aten"});
  const auto model = on_chosen_device();
  Engine engine(*model, {.speculative = 0});
  const auto rows = prompts();
  for (size_t i = 0; i < rows.size(); ++i)
    engine.submit({static_cast<int64_t>(i), rows[i], 2, options[i % options.size()]});
  Sampled out;
  const Callbacks callbacks{
      .done = [&](Completion c) { out.completions[{c.index, c.sample}] = std::move(c); },
      .on_token = {}};
  engine.step(callbacks);  // the prompts
  engine.step(callbacks);
  out.before = pretend::counts();
  for (out.steps = 0; out.steps < 4; ++out.steps) engine.step(callbacks);
  out.after = pretend::counts();
  while (engine.step(callbacks)) {
  }
  models::use_device({.device = "cpu", .backend = "native"});
  return out;
}

GenerationOptions options_of(double temperature, int64_t top_k = 0, double top_p = 1) {
  GenerationOptions o;
  o.sampling.temperature = temperature;
  o.sampling.top_k = top_k;
  o.sampling.top_p = top_p;
  o.sampling.seed = 3;
  o.max_new_tokens = 9;
  return o;
}

void check_alike(const Completions& found, const Completions& expected) {
  REQUIRE(found.size() == expected.size());
  for (const auto& [key, c] : expected) {
    const Completion& own = found.at(key);
    CHECK(own.tokens == c.tokens);
    REQUIRE(own.logprobs.size() == c.logprobs.size());
    for (size_t i = 0; i < c.logprobs.size(); ++i)
      CHECK(std::abs(own.logprobs[i] - c.logprobs[i]) < 1e-6);
    REQUIRE(own.top_logprobs.size() == c.top_logprobs.size());
  }
}

}  // namespace

TEST_CASE("a device's tokens are the processor's, and one small copy a step comes to the host") {
  const std::vector<std::vector<GenerationOptions>> all{
      {options_of(1)},
      {options_of(0)},
      {options_of(0.7, 20, 0.9)},
      {options_of(1), options_of(0), options_of(0.7, 20), options_of(1, 0, 0.5)}};
  for (const auto& options : all) {
    const Sampled expected = sampled("cpu", options), found = sampled("pretend", options);
    check_alike(found.completions, expected.completions);
    CHECK(found.after.to_host - found.before.to_host == found.steps);
    CHECK(found.after.scalars == found.before.scalars);
    const int64_t rows = 2 * static_cast<int64_t>(prompts().size());
    CHECK(found.after.bytes_to_host - found.before.bytes_to_host ==
          found.steps * rows * 3 * static_cast<int64_t>(sizeof(double)));
    // Positions, slots and pages of the pass, its ids, and the rules of each head's rows.
    MESSAGE("copies to the device a step: ",
            (found.after.to_device - found.before.to_device) / found.steps);
  }
}

TEST_CASE("rules that read logits bring those of their rows to the host alone") {
  GenerationOptions penalized = options_of(1), first = options_of(1), recorded = options_of(1);
  penalized.sampling.repetition_penalty = 1.3;
  first.stop_token_ids = {1, 2, 3};
  first.max_new_tokens = 9;
  first.min_new_tokens = 9;
  recorded.top_logprobs = 2;
  for (const GenerationOptions& o : {penalized, first, recorded}) {
    const std::vector<GenerationOptions> options{options_of(1), o};
    const Sampled expected = sampled("cpu", options), found = sampled("pretend", options);
    check_alike(found.completions, expected.completions);
    CHECK(found.after.to_host - found.before.to_host == 2 * found.steps);
    // Two of five prompts have the rule.
    CHECK(found.after.bytes_to_host - found.before.bytes_to_host >
          found.steps * 4 * kVocabulary * 4);
    CHECK(found.after.bytes_to_host - found.before.bytes_to_host <
          found.steps * 5 * kVocabulary * 4);
  }
}

}  // namespace temper::generate
