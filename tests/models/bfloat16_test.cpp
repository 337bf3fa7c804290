// Computing in bfloat16 is computing in float32 with weights that were rounded: the same bits, in
// the forward pass and in every gradient, however the weights are kept.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include "temper/base/error.h"
#include "temper/generate/engine.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "tests/models/golden.h"

using namespace temper;
using models::CausalLM;

namespace {

// The weights that products read; norms and biases are vectors.
void each_matrix(CausalLM& model, const std::function<void(nn::Parameter&)>& visit) {
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (p.shape().size() == 2 && name.find("lora_") == std::string::npos) visit(p);
  });
}

// A float32 model whose matrices were rounded.
std::unique_ptr<CausalLM> rounded(const std::string& name) {
  auto model = models::load_model(golden_model(name));
  each_matrix(*model,
              [](nn::Parameter& p) { p.set_value(p.value().to(at::kBFloat16).to(at::kFloat)); });
  return model;
}

at::Tensor logp(CausalLM& model) {
  Sequences sequences;
  for (const int32_t length : {23, 40}) {
    std::vector<int32_t>& tokens = sequences.emplace_back();
    for (int32_t i = 0; i < length; ++i) tokens.push_back((7 * i * length + 3) % 60);
  }
  return log_probabilities(model, sequences);
}

std::map<std::string, at::Tensor> gradients(CausalLM& model) {
  logp(model).mean().backward();
  std::map<std::string, at::Tensor> all;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (p.trainable()) all[name] = p.value().grad();
  });
  return all;
}

void check_equal(const std::map<std::string, at::Tensor>& a,
                 const std::map<std::string, at::Tensor>& b) {
  REQUIRE(!a.empty());
  REQUIRE(a.size() == b.size());
  for (const auto& [name, gradient] : a) {
    CAPTURE(name);
    REQUIRE(gradient.defined());
    CHECK((gradient.scalar_type() == at::kFloat));
    CHECK(gradient.abs().max().item<float>() > 0);
    CHECK(at::equal(gradient, b.at(name)));
  }
}

}  // namespace

TEST_CASE("outputs and gradients are those of rounded weights in float32, to the bit") {
  for (const char* name : {"llama", "qwen3", "gemma2", "gemma3_text"}) {
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name)), plain = rounded(name);
    const at::Tensor before = logp(*model);
    models::set_storage(*model, {ops::WeightFormat::kRoundedBFloat16, {}});
    train_all(*model);
    train_all(*plain);
    CHECK(at::equal(logp(*model), logp(*plain)));
    CHECK(!at::equal(logp(*model), before));
    check_equal(gradients(*model), gradients(*plain));
    each_matrix(*model, [](nn::Parameter& p) { CHECK((p.value().scalar_type() == at::kFloat)); });
  }
}

TEST_CASE(
    "weights kept in bfloat16 give the bits of those rounded on the way, in half the memory") {
  for (const char* name : {"qwen2", "gemma3_text"}) {  // files of bfloat16 and of float32
    CAPTURE(name);
    const auto kept = models::load_model(golden_model(name), {ops::WeightFormat::kBFloat16, {}}),
               plain = rounded(name);
    each_matrix(*kept, [](nn::Parameter& p) {
      CHECK((p.value().scalar_type() == at::kBFloat16));
      CHECK_THROWS_AS(p.set_trainable(true), RunError);
    });
    CHECK(at::equal(logp(*kept), logp(*plain)));
    const at::NoGradGuard no_grad;  // with panels that are kept
    CHECK(at::equal(logp(*kept), logp(*plain)));
  }
}

TEST_CASE("an adapter trains on a base that is kept in bfloat16, and merges into it in float32") {
  const auto kept = models::load_model(golden_model("qwen3"), {ops::WeightFormat::kBFloat16, {}}),
             plain = rounded("qwen3");
  for (CausalLM* model : {kept.get(), plain.get()})
    models::load_adapter(*model, golden_model("qwen3") + "/adapter");
  CHECK(at::equal(logp(*kept), logp(*plain)));
  const std::map<std::string, at::Tensor> found = gradients(*kept);
  CHECK(found.begin()->first.find("lora_") != std::string::npos);
  check_equal(found, gradients(*plain));

  for (CausalLM* model : {kept.get(), plain.get()}) models::merge_adapters(*model);
  std::map<std::string, at::Tensor> expected;
  plain->each_parameter(
      [&](const std::string& name, nn::Parameter& p) { expected[name] = p.value(); });
  kept->each_parameter([&](const std::string& name, nn::Parameter& p) {
    CAPTURE(name);
    CHECK(at::equal(p.value().to(at::kFloat), expected.at(name)));
  });
}

namespace {

std::unique_ptr<CausalLM> adapted(const std::string& name, const models::Storage& storage) {
  auto model = models::load_model(golden_model(name), storage);
  models::load_adapter(*model, golden_model(name) + "/adapter");
  return model;
}

// Sampling and scoring of the model agree to the bit.
void check_sampler(CausalLM& model) {
  generate::GenerationOptions options;
  options.max_new_tokens = 12;
  options.ignore_eos = true;
  const std::vector<std::vector<int32_t>> prompts{{3, 5, 7}, {2, 4, 6, 8, 10}, {11}};
  generate::generate(model, prompts, 2, options, [&](const generate::Completion& c) {
    auto forest = std::make_shared<Forest>();
    std::vector<int32_t> tokens = prompts[static_cast<size_t>(c.index)];
    const int64_t first = static_cast<int64_t>(tokens.size()) - 1;
    tokens.insert(tokens.end(), c.tokens.begin(), c.tokens.end());
    forest->add_root(tokens);
    std::vector<int64_t> rows, target;
    for (size_t i = 0; i < c.tokens.size(); ++i) {
      rows.push_back(first + static_cast<int64_t>(i));
      target.push_back(c.tokens[i]);
    }
    const at::Tensor scored =
        model.token_logp(model.forward({.forest = forest}), rows, target).logp;
    CHECK(at::equal(scored, at::tensor(c.logprobs)));
  });
}

// The same, and they do not agree with those of exact arithmetic, from which they are less than
// `near` away.
void check_sampler(const char* name, models::Storage storage, double near = 0.05) {
  const auto fast = models::load_model(golden_model(name), storage);
  storage.arithmetic = ops::Arithmetic::kExact;
  const auto exact = models::load_model(golden_model(name), storage);
  const at::NoGradGuard no_grad;
  const at::Tensor a = logp(*fast), b = logp(*exact);
  CHECK(!at::equal(a, b));
  CHECK((a - b).abs().max().item<double>() < near);
  check_sampler(*fast);
}

// The adapter's matrices.
void each_of_adapter(CausalLM& model, const std::function<void(nn::Parameter&)>& visit) {
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (name.find("lora_A") != std::string::npos || name.find("lora_B") != std::string::npos)
      visit(p);
  });
}
// Whether the model gives the same where these are rounded to bfloat16.
bool rounds_adapter(CausalLM& model) {
  const at::NoGradGuard no_grad;
  const at::Tensor before = logp(model);
  each_of_adapter(model, [](nn::Parameter& p) {
    p.set_value(p.value().detach().to(at::kBFloat16).to(at::kFloat));
  });
  return at::equal(logp(model), before);
}

}  // namespace

TEST_CASE("rounded activations: sampling and scoring agree to the bit, whatever shares the batch" *
          doctest::test_suite("exact")) {
  using ops::Arithmetic;
  using ops::WeightFormat;
  for (const char* name : {"llama", "qwen3", "gemma2"}) {
    CAPTURE(name);
    for (const Arithmetic arithmetic : {Arithmetic::kFast, Arithmetic::kAmx})
      check_sampler(name,
                    {.weights = WeightFormat::kBFloat16, .blocks = {}, .arithmetic = arithmetic});
    check_sampler(name, {.blocks = WeightFormat::kNf4, .arithmetic = Arithmetic::kAmx});
    for (const WeightFormat blocks : {WeightFormat::kInt8, WeightFormat::kNf4})
      check_sampler(name, {.blocks = blocks, .arithmetic = Arithmetic::kInteger}, 0.3);
  }
}

TEST_CASE("rounded activations: gradients are near those of exact arithmetic, and others") {
  for (const ops::Arithmetic arithmetic : {ops::Arithmetic::kFast, ops::Arithmetic::kAmx}) {
    const auto fast = models::load_model(golden_model("qwen3")),
               exact = models::load_model(golden_model("qwen3"));
    models::set_storage(
        *fast,
        {.weights = ops::WeightFormat::kRoundedBFloat16, .blocks = {}, .arithmetic = arithmetic});
    models::set_storage(*exact, {ops::WeightFormat::kRoundedBFloat16, {}});
    train_all(*fast);
    train_all(*exact);
    const auto found = gradients(*fast), expected = gradients(*exact);
    for (const auto& [name, gradient] : expected) {
      CAPTURE(name);
      const double error =
          (found.at(name) - gradient).norm().item<double>() / gradient.norm().item<double>();
      CHECK(error > 0);
      CHECK(error < 0.03);
    }
  }
}

TEST_CASE("rounded activations: an adapter's matrices are multiplied as the one beside them" *
          doctest::test_suite("exact")) {
  using ops::Arithmetic;
  using ops::WeightFormat;
  for (const Arithmetic arithmetic : {Arithmetic::kFast, Arithmetic::kAmx}) {
    const models::Storage storage{WeightFormat::kBFloat16, {}, arithmetic};
    const auto fast = adapted("qwen3", storage),
               exact = adapted("qwen3", {WeightFormat::kBFloat16, {}});
    const auto found = gradients(*fast);
    for (const auto& [name, gradient] : gradients(*exact)) {
      CAPTURE(name);
      const double error =
          (found.at(name) - gradient).norm().item<double>() / gradient.norm().item<double>();
      CHECK(error > 0);
      CHECK(error < 0.1);  // more factors are rounded than without an adapter
    }
    check_sampler(*fast);
    CHECK(rounds_adapter(*fast));
    CHECK(!rounds_adapter(*exact));
  }
  CHECK(rounds_adapter(
      *adapted("qwen3", {.blocks = WeightFormat::kNf4, .arithmetic = Arithmetic::kAmx})));
  CHECK(!rounds_adapter(
      *adapted("qwen3", {.blocks = WeightFormat::kNf4, .arithmetic = Arithmetic::kInteger})));
}
