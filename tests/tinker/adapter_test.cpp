// Adapters on one base: their passes, their optimizer, what they leave each other.
#include "temper/tinker/adapter.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/generate/engine.h"
#include "temper/generate/score.h"
#include "temper/io/safetensors.h"
#include "temper/tinker/forward_backward.h"
#include "tests/generate/tiny.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::tinker;

namespace {

struct Directory {
  Directory() : path(temporary_directory() + "/temper_tinker_" + std::to_string(::getpid())) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Directory() { std::filesystem::remove_all(path); }
  const std::string path;
};

WireTensor token_ids(std::vector<int64_t> values) {
  WireTensor tensor;
  tensor.shape = {static_cast<int64_t>(values.size())};
  tensor.integers = std::move(values);
  tensor.is_integer = true;
  return tensor;
}

ForwardBackwardRequest request(const std::vector<std::vector<int32_t>>& rows, bool forward_only) {
  ForwardBackwardRequest r;
  r.loss_fn = "cross_entropy";
  r.forward_only = forward_only;
  for (const std::vector<int32_t>& row : rows) {
    WireDatum& datum = r.data.emplace_back();
    datum.tokens.assign(row.begin(), row.end() - 1);
    datum.inputs["target_tokens"] = token_ids({row.begin() + 1, row.end()});
  }
  return r;
}

// The loss's answer, as the message's bytes.
std::string run(models::CausalLM& model, TrainedAdapter& adapter,
                const std::vector<std::vector<int32_t>>& rows, bool forward_only = false) {
  LossBatch batch = check_batch(request(rows, forward_only), {model.vocab_size, 512});
  ForwardBackward pass(model, adapter, std::move(batch), 8);
  while (!pass.step()) {
  }
  return pass.result();
}

const std::vector<std::vector<int32_t>> kRows{{1, 2, 3, 4, 5}, {7, 8, 9}, {3, 3, 4, 9, 2, 6}};
const AdamFields kAdam{.learning_rate = 1e-2, .weight_decay = 0.1, .grad_clip_norm = 0.5};

std::vector<at::Tensor> values(models::CausalLM& model, int index) {
  std::vector<at::Tensor> found;
  const auto take = [&](const std::string&, nn::Linear& layer) {
    nn::Lora* lora = layer.adapter(index);
    if (!lora) return;
    found.push_back(lora->lora_A.weight.value().detach().clone());
    found.push_back(lora->lora_B.weight.value().detach().clone());
  };
  model.visit({.linear = take, .tied_head = take});
  return found;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return true;
}

}  // namespace

TEST_CASE("two adapters on one base, in turns, get the numbers that each gets alone" *
          doctest::test_suite("exact")) {
  const auto alone = [](const AdapterRequest& form) {
    auto model = generate::tiny::model(61, {2});
    AdapterPlaces places(*model);
    TrainedAdapter adapter(places, form);
    std::vector<std::string> answers;
    for (int i = 0; i < 3; ++i) {
      answers.push_back(run(*model, adapter, kRows));
      adapter.step(kAdam);
    }
    return std::pair(answers, values(*model, adapter.index()));
  };
  const AdapterRequest forms[] = {{.rank = 3, .seed = 1},
                                  {.rank = 5, .seed = 2, .train_attn = false}};
  auto model = generate::tiny::model(61, {2});
  AdapterPlaces places(*model);
  TrainedAdapter first(places, forms[0]), second(places, forms[1]);
  std::vector<std::string> answers[2];
  for (int i = 0; i < 3; ++i) {
    answers[0].push_back(run(*model, first, kRows));
    answers[1].push_back(run(*model, second, kRows));
    second.step(kAdam);
    first.step(kAdam);
  }
  CHECK(alone(forms[0]).first == answers[0]);
  CHECK(alone(forms[1]).first == answers[1]);
  CHECK(same(alone(forms[0]).second, values(*model, first.index())));
  CHECK(same(alone(forms[1]).second, values(*model, second.index())));
}

namespace {

void check_samples(bool tied, const AdapterRequest& form) {
  CAPTURE(tied);
  CAPTURE(form.train_unembed);
  auto model = generate::tiny::model(61, {}, tied);
  AdapterPlaces places(*model);
  TrainedAdapter adapter(places, form);
  for (int i = 0; i < 3; ++i) {
    run(*model, adapter, kRows);
    adapter.step(kAdam);
  }
  const auto sampled = adapter.snapshot();
  const std::vector<at::Tensor> then = values(*model, sampled->index());
  run(*model, adapter, kRows);
  adapter.step(kAdam);
  CHECK(same(then, values(*model, sampled->index())));  // training goes on beside it
  CHECK(!same(then, values(*model, adapter.index())));
  std::vector<generate::Completion> done;
  generate::GenerationOptions options;
  options.max_new_tokens = 9;
  generate::generate(*model, {{5, 6, 7}}, 4, options,
                     [&](generate::Completion c) { done.push_back(std::move(c)); }, nullptr, {}, {},
                     {sampled->index()});
  REQUIRE(done.size() == 4);
  for (const generate::Completion& c : done) {
    std::vector<int32_t> row{5, 6, 7};
    row.insert(row.end(), c.tokens.begin(), c.tokens.end());
    const auto scored = generate::score(*model, {{row, 3, sampled->index()}});
    CHECK(scored[0].logprobs == c.logprobs);
  }
}

}  // namespace

TEST_CASE("what a trained adapter samples has forward's log-probabilities, bit for bit" *
          doctest::test_suite("exact")) {
  for (const bool tied : {true, false}) {
    check_samples(tied, {.rank = 4, .seed = 7});
    check_samples(tied, {.rank = 4, .seed = 7, .train_unembed = false});
    check_samples(tied, {.rank = 4, .seed = 7, .train_attn = false, .train_mlp = false});
  }
}

TEST_CASE("what transforms each token alone is an MLP: of Gemma 4 the inputs of layers, too") {
  const auto model = models::make_model(models::HfConfig::load(golden_path("models/gemma4_text")));
  using Names = std::vector<std::string>;
  CHECK((lora_config(*model, {.train_mlp = false, .train_unembed = false}).target_modules ==
         Names{"k_proj", "o_proj", "q_proj", "v_proj"}));
  CHECK((lora_config(*model, {.train_attn = false, .train_unembed = false}).target_modules ==
         Names{"down_proj", "gate_proj", "per_layer_input_gate", "per_layer_model_projection",
               "per_layer_projection", "up_proj"}));
}

TEST_CASE("the switches say what is adapted: attention, MLPs, the vocabulary's head") {
  for (const bool tied : {true, false}) {
    CAPTURE(tied);
    auto model = generate::tiny::model(61, {2}, tied);
    AdapterPlaces places(*model);
    const auto adapted = [&](bool attn, bool mlp, bool unembed) {
      TrainedAdapter adapter(
          places, {.rank = 2, .train_attn = attn, .train_mlp = mlp, .train_unembed = unembed});
      run(*model, adapter, kRows);
      int64_t gradients = 0;
      for (const at::Tensor& g : adapter.take_gradients()) gradients += g.defined();
      const size_t all = values(*model, adapter.index()).size();
      CHECK(gradients == static_cast<int64_t>(all));
      return all;
    };
    // Two layers of four and of three projections; A and B of each.
    CHECK(adapted(true, false, false) == 16);
    CHECK(adapted(false, true, false) == 12);
    CHECK(adapted(true, true, false) == 28);
    CHECK(adapted(false, false, true) == 2);
    CHECK(adapted(true, true, true) == 30);
    CHECK(model->adapts_head(-1) == false);
  }
}

// Rows under adapters with and without a part on the head, and under none.
TEST_CASE("sampling of several adapters in one pass, heads adapted, gives each what it gets alone" *
          doctest::test_suite("exact")) {
  for (const bool tied : {true, false}) {
    CAPTURE(tied);
    auto model = generate::tiny::model(61, {}, tied);
    AdapterPlaces places(*model);
    TrainedAdapter head(places, {.rank = 3, .seed = 1, .train_attn = false, .train_mlp = false}),
        all(places, {.rank = 4, .seed = 2}),
        body(places, {.rank = 2, .seed = 3, .train_unembed = false});
    for (TrainedAdapter* adapter : {&head, &all, &body})
      for (int i = 0; i < 2; ++i) {
        run(*model, *adapter, kRows);
        adapter->step(kAdam);
      }
    generate::GenerationOptions options;
    options.max_new_tokens = 9;
    const auto sampled = [&](const std::vector<int>& adapters) {
      const std::vector<std::vector<int32_t>> prompts(adapters.size(), {5, 6, 7});
      std::map<size_t, std::pair<std::vector<int32_t>, std::vector<float>>> done;
      generate::generate(
          *model, prompts, 2, options,
          [&](generate::Completion c) {
            done[static_cast<size_t>(c.index) * 2 + static_cast<size_t>(c.sample)] = {c.tokens,
                                                                                      c.logprobs};
          },
          nullptr, {}, {}, adapters);
      return done;
    };
    const std::vector<int> indices{head.index(), all.index(), body.index(), -1};
    const auto together = sampled(indices);
    REQUIRE(together.size() == 8);
    for (size_t i = 0; i < indices.size(); ++i) {
      CAPTURE(i);
      for (size_t s = 0; s < 2; ++s) {
        std::vector<int32_t> row{5, 6, 7};
        const auto& [tokens, logprobs] = together.at(2 * i + s);
        row.insert(row.end(), tokens.begin(), tokens.end());
        CHECK(generate::score(*model, {{row, 3, indices[i]}})[0].logprobs == logprobs);
      }
    }
  }
}

TEST_CASE("a new adapter changes nothing; places that end are used again") {
  auto model = generate::tiny::model(61, {2});
  const auto base = generate::score(*model, {{{1, 2, 3, 4}, 1, 0}});
  AdapterPlaces places(*model);
  int index = 0;
  {
    TrainedAdapter adapter(places, {.rank = 2});
    index = adapter.index();
    CHECK(generate::score(*model, {{{1, 2, 3, 4}, 1, index}})[0].logprobs == base[0].logprobs);
    const auto copy = adapter.snapshot();
    CHECK(copy->index() != index);
  }
  places.remove_ended();
  TrainedAdapter next(places, {.rank = 6});
  CHECK(next.index() == index);
  CHECK(generate::score(*model, {{{1, 2, 3, 4}, 1, 0}})[0].logprobs == base[0].logprobs);
}

TEST_CASE("a request that fails leaves no gradient; a forward pass neither; requests add up") {
  auto model = generate::tiny::model(61, {2});
  AdapterPlaces places(*model);
  TrainedAdapter one(places, {.rank = 3, .seed = 1}), two(places, {.rank = 3, .seed = 1});
  for (TrainedAdapter* adapter : {&one, &two}) run(*model, *adapter, {kRows[0]});
  run(*model, one, kRows, true);
  {
    LossBatch batch = check_batch(request(kRows, false), {model->vocab_size, 512});
    ForwardBackward abandoned(*model, one, std::move(batch), 4);
    CHECK(!abandoned.step());
  }
  for (TrainedAdapter* adapter : {&one, &two}) {
    run(*model, *adapter, {kRows[1]});
    adapter->step(kAdam);
  }
  CHECK(same(values(*model, one.index()), values(*model, two.index())));
}

// torch.optim.AdamW in double, on one element.
TEST_CASE("the optimizer is AdamW with the fields' values, also without gradients") {
  auto model = generate::tiny::model(61, {2});
  AdapterPlaces places(*model);
  TrainedAdapter adapter(places, {.rank = 3, .seed = 1});
  const AdamFields fields{
      .learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.2};
  run(*model, adapter, kRows);
  const std::vector<at::Tensor> gradients = adapter.take_gradients();
  adapter.put_gradients(gradients);
  const std::vector<at::Tensor> before = values(*model, adapter.index());
  adapter.step(fields);
  const std::vector<at::Tensor> after = values(*model, adapter.index());
  adapter.step(fields);  // without gradients
  const std::vector<at::Tensor> last = values(*model, adapter.index());
  for (size_t i = 0; i < before.size(); ++i) {
    const double p = before[i].flatten()[1].item<double>(),
                 g = gradients[i].flatten()[1].item<double>();
    double m = 0.2 * g, v = 0.1 * g * g;
    const double decayed = p * (1 - 0.05 * 0.2);
    const double p1 = decayed - 0.05 / 0.2 * m / (std::sqrt(v) / std::sqrt(0.1) + 1e-3);
    CHECK(after[i].flatten()[1].item<double>() == doctest::Approx(p1).epsilon(1e-5));
    m *= 0.8;
    v *= 0.9;
    const double p2 =
        p1 * (1 - 0.05 * 0.2) - 0.05 / (1 - 0.64) * m / (std::sqrt(v) / std::sqrt(1 - 0.81) + 1e-3);
    CHECK(last[i].flatten()[1].item<double>() == doctest::Approx(p2).epsilon(1e-5));
  }
}

TEST_CASE("a saved adapter goes on as it was, with its optimizer" * doctest::test_suite("exact")) {
  const Directory directory;
  auto model = generate::tiny::model(61, {2});
  AdapterPlaces places(*model);
  TrainedAdapter adapter(places, {.rank = 3, .seed = 1});
  const auto train = [&](TrainedAdapter& a) {
    const std::string answer = run(*model, a, kRows);
    a.step(kAdam);
    return answer;
  };
  train(adapter);
  adapter.save("base", directory.path, true);
  TrainedAdapter loaded(places, directory.path, true);
  CHECK(loaded.steps() == 1);
  // Servers' states outlive them: the form of the file stays.
  const std::string file = directory.path + "/optimizer.safetensors";
  CHECK(read_safetensors_metadata(file).at("steps") == "1");
  for (const char* moment : {".first", ".second"})
    CHECK(read_safetensors(file).contains(
        std::string("model.layers.0.self_attn.q_proj.lora_A.weight") + moment));
  for (int i = 0; i < 2; ++i) CHECK(train(adapter) == train(loaded));
  adapter.load(directory.path, false);
  CHECK(adapter.steps() == 0);
  for (const char* steps : {"", "many", "1 ", "-1", "99999999999999999999"}) {
    CAPTURE(steps);
    write_safetensors(file, read_safetensors(file), {{"steps", steps}});
    const std::string what = file + ": found " + steps + " steps, expected a number";
    CHECK_THROWS_WITH_AS(TrainedAdapter(places, directory.path, true), what.c_str(), DataError);
  }
  std::filesystem::remove(file);
  CHECK_THROWS_AS(TrainedAdapter(places, directory.path, true), ConfigError);
}

TEST_CASE("more targets than are held at once give the same numbers as few") {
  auto model = generate::tiny::model(61, {2});
  AdapterPlaces places(*model);
  TrainedAdapter few(places, {.rank = 3, .seed = 1}), many(places, {.rank = 3, .seed = 1});
  run(*model, few, {kRows[0]});
  // Each target 8000 times: so much larger is the gradient.
  ForwardBackwardRequest wide = request({kRows[0]}, false);
  WireTensor& targets = wide.data[0].inputs["target_tokens"];
  constexpr int64_t kColumns = 4000;
  std::vector<int64_t> repeated;
  for (const int64_t id : targets.integers) repeated.insert(repeated.end(), kColumns, id);
  targets = token_ids(repeated);
  targets.shape = {4, kColumns};
  wide.data.push_back(wide.data[0]);
  ForwardBackward pass(*model, many, check_batch(wide, {model->vocab_size, 512}), 64);
  while (!pass.step()) {
  }
  const std::vector<at::Tensor> a = few.take_gradients(), b = many.take_gradients();
  for (size_t i = 0; i < a.size(); ++i) {
    const double size = a[i].norm().item<double>(),
                 apart = (a[i] - b[i] / (2.0 * kColumns)).norm().item<double>();
    CHECK(apart <= 1e-3 * size);  // thousands of additions in float32
  }
}

TEST_CASE("data without targets have no loss, and too long ones are refused") {
  auto model = generate::tiny::model(61, {2});
  AdapterPlaces places(*model);
  TrainedAdapter adapter(places, {.rank = 3});
  ForwardBackwardRequest empty = request({kRows[0]}, false);
  WireTensor& targets = empty.data[0].inputs["target_tokens"];
  targets = {.shape = {4, 2}, .is_integer = true, .is_sparse = true, .crow = {0, 0, 0, 0, 0}};
  ForwardBackward pass(*model, adapter, check_batch(empty, {model->vocab_size, 512}), 64);
  CHECK(pass.step());
  CHECK(!pass.result().empty());
  CHECK_THROWS_AS(check_batch(request({kRows[0]}, false), {model->vocab_size, 512, 3}), DataError);
  CHECK_NOTHROW(check_batch(request({kRows[0]}, true), {model->vocab_size, 512, 3}));
  CHECK_THROWS_AS(check_batch(request({kRows[0]}, true), {model->vocab_size, 3}), DataError);
  CHECK_THROWS_AS(check_batch(request({kRows[0]}, true), {5, 512}), DataError);
}
