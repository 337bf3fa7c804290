// Passes that several adapters share: each gets the log-probabilities and the gradients of its own
// pass, bit for bit.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "temper/base/error.h"
#include "temper/models/load.h"
#include "temper/nn/mixed_adapters.h"
#include "temper/tinker/forward_backward.h"
#include "tests/generate/tiny.h"

using namespace temper;
using namespace temper::tinker;

namespace {

constexpr int64_t kWords = 61;

std::unique_ptr<models::CausalLM> shared_model(const std::string& model_type, bool tied) {
  Json json = {{"model_type", model_type},
               {"vocab_size", kWords},
               {"hidden_size", 24},
               {"intermediate_size", 36},
               {"num_hidden_layers", 3},
               {"num_attention_heads", 2},
               {"num_key_value_heads", 1},
               {"head_dim", 12},
               {"max_position_embeddings", 512},
               {"initializer_range", 0.3},
               {"sliding_window", 5},
               {"query_pre_attn_scalar", 10},
               {"num_experts", 5},
               {"num_experts_per_tok", 2},
               {"moe_intermediate_size", 20},
               {"full_attention_interval", 2},
               {"linear_num_key_heads", 2},
               {"linear_num_value_heads", 2},
               {"linear_key_head_dim", 6},
               {"linear_value_head_dim", 6},
               {"tie_word_embeddings", tied}};
  if (model_type == "gemma4_text")
    json.update({{"layer_types", {"sliding_attention", "full_attention", "full_attention"}},
                 {"global_head_dim", 16},
                 {"hidden_size_per_layer_input", 6},
                 {"vocab_size_per_layer_input", kWords}});
  if (model_type == "qwen3_5_text") json["head_dim"] = 16;
  return models::init_model(models::HfConfig::parse(json, "test"), 3);
}

using Gradients = std::vector<at::Tensor>;

bool same_numbers(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.sizes() == y.sizes() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

void check_gradients_same(const Gradients& found, const Gradients& expected) {
  REQUIRE(found.size() == expected.size());
  bool some = false;
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (!expected[i].defined()) continue;
    CHECK(same_numbers(found[i], expected[i]));
    some = some || expected[i].abs().max().item<float>() > 0;
  }
  CHECK(some);
}

// What an adapter trains on: rows of different lengths, and prompts with completions.
std::vector<std::vector<int32_t>> words_of(size_t adapter) {
  std::vector<std::vector<int32_t>> rows;
  for (size_t r = 0; r < 2 + adapter; ++r) {
    std::vector<int32_t>& row = rows.emplace_back();
    for (size_t k = 0; k < 4 + (3 * r + 5 * adapter) % 9; ++k)
      row.push_back(static_cast<int32_t>((3 + 11 * r + 7 * adapter + 5 * k * k) % kWords));
  }
  return rows;
}
struct Owned {
  std::vector<std::vector<int32_t>> words;
  std::vector<int32_t> unread;  // labels of a prompt that nothing is asked for
  explicit Owned(size_t adapter) : words(words_of(adapter)), unread(words[0].size(), -1) {}
  std::vector<train::PackUnit> units() const {
    std::vector<train::PackUnit> all;
    for (const std::vector<int32_t>& row : words) all.push_back({{{-1, row, row}}});
    all.push_back({{{-1, words[0], unread}, {0, words[1], words[1]}, {0, words[0], words[0]}}});
    return all;
  }
};

struct Outcome {
  at::Tensor logp;
  std::vector<Gradients> gradients;  // by adapter
};

// A pass of some adapters, and of its loss a gradient that differs by target and adapter.
Outcome pass_of(models::CausalLM& model, const std::vector<TrainedAdapter*>& adapters,
                const std::vector<const Owned*>& rows, const train::PassOptions& options) {
  train::ForwardPass pass;
  std::vector<float> by;
  for (size_t a = 0; a < adapters.size(); ++a) {
    uint64_t number = 0;
    for (const train::PackUnit& unit : rows[a]->units())
      pass.add(unit, number++, adapters[a]->index());
    for (int64_t i = 0; std::ssize(by) < pass.num_targets(); ++i)
      by.push_back(std::sin(static_cast<float>(3 * i + adapters[a]->index())));
  }
  const at::Tensor logp = train::token_logp(model, pass, options).logp;
  (logp * at::tensor(by)).sum().backward();
  Outcome outcome{logp.detach(), {}};
  for (TrainedAdapter* adapter : adapters) outcome.gradients.push_back(adapter->take_gradients());
  return outcome;
}

// Adapters whose B is not zero any more.
struct Adapters {
  AdapterPlaces places;
  std::vector<std::unique_ptr<TrainedAdapter>> all;
  std::vector<Owned> rows;
  Adapters(models::CausalLM& model, const std::vector<AdapterRequest>& forms) : places(model) {
    for (size_t i = 0; i < forms.size(); ++i) {
      all.push_back(std::make_unique<TrainedAdapter>(places, forms[i]));
      rows.emplace_back(i);
    }
    for (int step = 0; step < 2; ++step)
      for (size_t i = 0; i < forms.size(); ++i) {
        pass(model, {i}, {}, false);
        all[i]->step({.learning_rate = 0.02});
      }
  }
  Outcome pass(models::CausalLM& model, const std::vector<size_t>& which,
               const train::PassOptions& options, bool take = true) {
    std::vector<TrainedAdapter*> adapters;
    std::vector<const Owned*> own;
    for (const size_t i : which) {
      adapters.push_back(all[i].get());
      own.push_back(&rows[i]);
    }
    Outcome outcome = pass_of(model, adapters, own, options);
    if (!take)
      for (size_t k = 0; k < which.size(); ++k) adapters[k]->put_gradients(outcome.gradients[k]);
    return outcome;
  }
};

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

const std::vector<AdapterRequest> kForms{{.rank = 3, .seed = 1},
                                         {.rank = 5, .seed = 2, .train_unembed = false},
                                         {.rank = 1, .seed = 3, .train_attn = false},
                                         {.rank = 8, .seed = 4, .train_mlp = false}};

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

namespace {

WireTensor numbers(std::vector<double> values) {
  WireTensor tensor;
  tensor.shape = {static_cast<int64_t>(values.size())};
  tensor.values = std::move(values);
  return tensor;
}

// A request of a loss over some of the adapter's rows.
LossBatch batch_of(size_t adapter, const std::string& loss, bool forward_only = false) {
  ForwardBackwardRequest request;
  request.loss_fn = loss;
  request.forward_only = forward_only;
  for (const std::vector<int32_t>& row : words_of(adapter)) {
    WireDatum& datum = request.data.emplace_back();
    datum.tokens.assign(row.begin(), row.end() - 1);
    WireTensor& targets = datum.inputs["target_tokens"];
    targets.is_integer = true;
    targets.integers = {row.begin() + 1, row.end()};
    targets.shape = {std::ssize(targets.integers)};
    std::vector<double> some, old;
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      some.push_back(i == 0 ? 0 : std::sin(static_cast<double>(i + adapter)));
      old.push_back(-4 + 0.1 * static_cast<double>(i));
    }
    if (loss == "cross_entropy") {
      datum.inputs["weights"] = numbers(some);
    } else {
      datum.inputs["advantages"] = numbers(some);
      datum.inputs["logprobs"] = numbers(old);
    }
  }
  return check_batch(std::move(request), {kWords, 512});
}

const char* const kLosses[] = {"cross_entropy", "ppo", "importance_sampling", "dro"};

// Runs requests until all are done or failed: all together, or each by itself. Their answers; an
// error's text.
std::vector<std::string> answers(std::vector<std::unique_ptr<ForwardBackward>> requests,
                                 bool together) {
  std::vector<std::string> found(requests.size());
  std::vector<ForwardBackward*> left;
  for (const auto& request : requests) left.push_back(request.get());
  while (!left.empty()) {
    if (together)
      ForwardBackward::step_together(left);
    else
      for (ForwardBackward* request : left) ForwardBackward::step_together({&request, 1});
    std::erase_if(left, [&](ForwardBackward* request) {
      size_t i = 0;
      while (requests[i].get() != request) ++i;
      try {
        if (request->done()) found[i] = request->result();
      } catch (const RunError& e) {
        found[i] = e.what();
      }
      return !found[i].empty();
    });
  }
  return found;
}

}  // namespace

TEST_CASE("requests with different losses share passes; what they give and train is their own" *
          doctest::test_suite("exact")) {
  const auto run = [](bool together) {
    const auto model = shared_model("qwen3", true);
    Adapters adapters(*model, kForms);
    std::vector<std::string> all;
    std::vector<Gradients> gradients;
    for (int step = 0; step < 3; ++step) {
      std::vector<std::unique_ptr<ForwardBackward>> requests;
      for (size_t i = 0; i < kForms.size(); ++i)
        requests.push_back(std::make_unique<ForwardBackward>(
            *model, *adapters.all[i], batch_of(i, kLosses[i], step == 1 && i == 2), 24));
      const std::vector<std::string> some = answers(std::move(requests), together);
      all.insert(all.end(), some.begin(), some.end());
      for (const auto& adapter : adapters.all) {
        const Gradients now = adapter->take_gradients();
        adapter->put_gradients(now);
        gradients.push_back(now);
        if (step != 0) adapter->step({.learning_rate = 1e-2, .grad_clip_norm = 0.5});
      }
    }
    for (const auto& adapter : adapters.all) gradients.push_back(adapter->take_gradients());
    return std::pair(all, gradients);
  };
  const auto alone = run(false), together = run(true);
  CHECK(alone.first == together.first);
  REQUIRE(alone.second.size() == together.second.size());
  for (size_t i = 0; i < alone.second.size(); ++i)
    for (size_t k = 0; k < alone.second[i].size(); ++k) {
      const at::Tensor &a = alone.second[i][k], &b = together.second[i][k];
      REQUIRE(a.defined() == b.defined());
      if (a.defined()) CHECK(same_numbers(a, b));
    }
}

TEST_CASE("a request whose numbers are not finite fails alone; the others get theirs") {
  const auto run = [](bool with_broken) {
    const auto model = shared_model("llama", false);
    Adapters adapters(*model, {kForms.begin(), kForms.begin() + 3});
    if (with_broken)
      model->visit({.linear = [&](const std::string&, nn::Linear& layer) {
        nn::Lora* const lora = layer.adapter(adapters.all[1]->index());
        if (!lora) return;
        lora->lora_B.weight.trained().detach().fill_(std::nanf(""));
        lora->lora_B.weight.mark_updated();
      }});
    std::vector<std::unique_ptr<ForwardBackward>> requests;
    for (size_t i = 0; i < 3; ++i)
      requests.push_back(
          std::make_unique<ForwardBackward>(*model, *adapters.all[i], batch_of(i, kLosses[i]), 64));
    const std::vector<std::string> found = answers(std::move(requests), with_broken);
    std::vector<Gradients> gradients;
    for (const auto& adapter : adapters.all) gradients.push_back(adapter->take_gradients());
    return std::pair(found, gradients);
  };
  const auto whole = run(false), broken = run(true);
  CHECK(broken.first[1].find("not finite") != std::string::npos);
  for (const at::Tensor& gradient : broken.second[1]) CHECK(!gradient.defined());
  for (const size_t i : {0, 2}) {
    CHECK(broken.first[i] == whole.first[i]);
    check_gradients_same(broken.second[i], whole.second[i]);
  }
}
