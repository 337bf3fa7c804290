// Passes that several adapters share: each gets the log-probabilities and the gradients of its own
// pass, bit for bit.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/nn/mixed_adapters.h"
#include "tests/tinker/shared_adapters.h"

using namespace temper;
using namespace temper::tinker;
using namespace temper::tinker::shared;

namespace {

void check_shared(models::CausalLM& model, const std::vector<AdapterRequest>& forms,
                  const train::PassOptions& options) {
  Adapters adapters(model, forms);
  std::vector<size_t> which;
  std::vector<at::Tensor> logp;
  std::vector<Gradients> alone;
  for (size_t i = 0; i < forms.size(); ++i) {
    Outcome one = adapters.pass(model, {i}, options);
    which.push_back(i);
    logp.push_back(one.logp);
    alone.push_back(one.gradients[0]);
  }
  const Outcome together = adapters.pass(model, which, options);
  CHECK(same_numbers(together.logp, at::cat(logp)));
  for (size_t i = 0; i < forms.size(); ++i) {
    CAPTURE(i);
    check_gradients_same(together.gradients[i], alone[i]);
  }
}

}  // namespace

TEST_CASE("adapters of different ranks share a pass and get the numbers of their own" *
          doctest::test_suite("exact")) {
  for (const char* family : {"qwen3", "llama", "gemma2", "gemma4_text", "qwen3_5_text"})
    for (const bool tied : {true, false})
      for (const size_t count : {2, 4}) {
        CAPTURE(std::string(family));
        CAPTURE(tied);
        CAPTURE(count);
        const auto model = shared_model(family, tied);
        check_shared(*model, {kForms.begin(), kForms.begin() + static_cast<ptrdiff_t>(count)}, {});
      }
  // No adapter on the head, the head alone, activations that are computed again.
  const auto model = shared_model("qwen3", true);
  check_shared(*model, {{.rank = 2, .train_unembed = false}, {.rank = 3, .train_unembed = false}},
               {});
  check_shared(*model, {{.rank = 2, .train_attn = false, .train_mlp = false}, {.rank = 3}}, {});
  check_shared(*model, kForms, {.temperature = 0.7, .recompute = true});
}

TEST_CASE("adapted experts do not share passes; routers and attention beside experts do" *
          doctest::test_suite("exact")) {
  const auto model = shared_model("qwen3_moe", false);
  check_shared(*model,
               {{.rank = 3, .seed = 1, .train_mlp = false},
                {.rank = 2, .seed = 2, .train_mlp = false, .train_unembed = false}},
               {});
  AdapterPlaces places(*model);
  TrainedAdapter one(places, {.rank = 3}), two(places, {.rank = 2});
  CHECK(!nn::mixes_adapters(*model));
  const Owned rows(0);
  CHECK_THROWS_AS(pass_of(*model, {&one, &two}, {&rows, &rows}, {}), RunError);
}

// The model's own adapter and a copy of it that went on, with magnitudes.
TEST_CASE("weight-decomposed adapters share passes" * doctest::test_suite("exact")) {
  const auto model = shared_model("llama", true);
  models::LoraConfig config;
  config.rank = 3;
  config.dora = true;
  models::add_lora(*model, config, 1);
  const models::TrainedCopy copy = models::train_adapter_copy(*model);
  std::vector<nn::Parameter*> parameters[2];
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (name.find("lora_") != std::string::npos) parameters[0].push_back(&p);
  });
  for (const auto& [name, parameter] : copy.parameters) parameters[1].push_back(parameter);
  for (int which : {0, 1})
    for (nn::Parameter* p : parameters[which]) {
      const at::Tensor x = at::arange(p->value().numel(), at::kFloat).add(which).sin();
      p->set_value(p->value().detach() + 0.05 * x.reshape(p->value().sizes()));
      p->set_trainable(true);
    }
  const Owned rows[] = {Owned(0), Owned(1)};
  const auto run = [&](const std::vector<int>& adapters) {
    train::ForwardPass pass;
    for (const int adapter : adapters)
      for (const train::PackUnit& unit : rows[adapter].units()) pass.add(unit, 0, adapter);
    const at::Tensor logp = train::token_logp(*model, pass, {}).logp;
    (logp * logp).sum().backward();
    Outcome outcome{logp.detach(), {}};
    for (const int adapter : adapters) {
      Gradients& gradients = outcome.gradients.emplace_back();
      for (nn::Parameter* p : parameters[adapter]) {
        gradients.push_back(p->trained().grad());
        p->trained().mutable_grad().reset();
      }
    }
    return outcome;
  };
  const Outcome first = run({0}), second = run({1}), both = run({0, 1});
  CHECK(same_numbers(both.logp, at::cat({first.logp, second.logp})));
  check_gradients_same(both.gradients[0], first.gradients[0]);
  check_gradients_same(both.gradients[1], second.gradients[0]);
}

TEST_CASE("the rows of an adapter stand together") {
  const Owned rows(0);
  const train::PackUnit unit = rows.units()[0];
  train::ForwardPass pass;
  pass.add(unit, 0, 1);
  pass.add(unit, 1, 2);
  CHECK_THROWS_AS(pass.add(unit, 2, 1), RunError);
  train::ForwardPass mixed;
  mixed.add(unit, 0);
  CHECK_THROWS_AS(mixed.add(unit, 1, 1), RunError);
}
