// What runs a block in another way gives what the plain pass gives: recomputation, rows that are
// left out, streams of adapters, in every format of the frozen weights.
#include "temper/nn/unit.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/nn/weights/read_rows.h"
#include "tests/train/tiny.h"

using namespace temper;

namespace {

enum class Adapter { kNone, kLora, kDora };

std::unique_ptr<models::CausalLM> model_with(Adapter adapter, ops::WeightFormat blocks) {
  auto model = tiny::model();
  if (adapter == Adapter::kNone) return model;
  model->each_parameter([](const std::string&, nn::Parameter& p) { p.set_trainable(false); });
  models::set_storage(*model, {.blocks = blocks});
  models::LoraConfig lora{.rank = 3, .alpha = 6};
  lora.dora = adapter == Adapter::kDora;
  models::add_lora(*model, lora, 7);
  uint64_t n = 0;  // B begins at zero, where nothing of A's gradient would be seen
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (name.find("lora_B") == name.npos) return;
    p.set_value(0.02 * at::arange(p.value().numel()).reshape(p.shape()).remainder(7 + ++n % 3) -
                0.05);
  });
  return model;
}

struct Pass {
  at::Tensor logp;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};

// The rows' log-probabilities and the gradients of their weighted sum.
Pass pass(models::CausalLM& model, bool recompute, bool some_rows, int adapter = 0) {
  auto forest = std::make_shared<Forest>();
  std::vector<int64_t> rows, target;
  for (const std::vector<int32_t>& tokens : tiny::rows(4)) {
    const int64_t start = forest->num_tokens();
    forest->add_root(tokens);
    for (size_t i = tokens.size() / 2; i < tokens.size(); ++i) {  // the second halves
      rows.push_back(start + static_cast<int64_t>(i) - 1);
      target.push_back(tokens[i]);
    }
  }
  nn::Context context{.forest = forest, .adapter = adapter};
  context.recompute = recompute;
  if (some_rows) context.rows = nn::rows_to_read(rows, forest->num_tokens());
  CHECK((context.rows != nullptr) == some_rows);
  Pass out;
  const at::Tensor hidden = model.forward(context);
  out.logp = model.token_logp(hidden, rows, target, {.adapter = adapter}).logp;
  const at::Tensor weights = at::linspace(0.5, 1.5, out.logp.numel());
  (out.logp * weights).sum().backward();
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (!p.trainable()) return;
    out.gradients.emplace_back(name, p.value().grad().clone());
    p.value().mutable_grad().reset();
  });
  return out;
}

double largest_difference(const Pass& a, const Pass& b) {
  double largest = 0;
  for (size_t i = 0; i < a.gradients.size(); ++i)
    largest = std::max(largest,
                       (a.gradients[i].second - b.gradients[i].second).abs().max().item<double>());
  return largest;
}

template <class Check>
void for_every_kind(const Check& check) {
  for (const auto& [adapter, blocks] : {std::pair{Adapter::kNone, ops::WeightFormat::kFloat32},
                                        {Adapter::kLora, ops::WeightFormat::kFloat32},
                                        {Adapter::kLora, ops::WeightFormat::kBFloat16},
                                        {Adapter::kLora, ops::WeightFormat::kNf4},
                                        {Adapter::kDora, ops::WeightFormat::kFloat32},
                                        {Adapter::kDora, ops::WeightFormat::kInt8}}) {
    CAPTURE(static_cast<int>(adapter));
    CAPTURE(ops::row_of(blocks).name);
    check(*model_with(adapter, blocks));
  }
}

}  // namespace

TEST_CASE("blocks that are computed again give the same bits, gradients too") {
  for_every_kind([](models::CausalLM& model) {
    const Pass plain = pass(model, false, false), again = pass(model, true, false);
    CHECK(tiny::same_bits(plain.logp, again.logp));
    REQUIRE(!plain.gradients.empty());
    for (size_t i = 0; i < plain.gradients.size(); ++i) {
      CAPTURE(plain.gradients[i].first);
      CHECK(plain.gradients[i].second.abs().max().item<double>() > 0);
      CHECK(tiny::same_bits(plain.gradients[i].second, again.gradients[i].second));
    }
  });
}

TEST_CASE(
    "leaving out rows that nobody reads changes no log-probability, and gradients by rounding "
    "alone") {
  for_every_kind([](models::CausalLM& model) {
    const Pass all = pass(model, false, false), some = pass(model, false, true);
    CHECK(tiny::same_bits(all.logp, some.logp));
    CHECK(largest_difference(all, some) < 1e-5);
    const Pass both = pass(model, true, true);
    CHECK(tiny::same_bits(some.logp, both.logp));
    CHECK(largest_difference(some, both) == 0);
  });
}

TEST_CASE("a frozen copy of an adapter computes what the adapter did, whatever becomes of it") {
  const auto model = model_with(Adapter::kDora, ops::WeightFormat::kFloat32);
  const at::NoGradGuard no_grad;
  const auto logp = [&](int adapter) {
    auto forest = std::make_shared<Forest>();
    forest->add_root(std::vector<int32_t>{3, 4, 5, 6});
    const at::Tensor hidden = model->forward({.forest = forest, .adapter = adapter});
    return model->token_logp(hidden, {0, 1, 2}, {4, 5, 6}, {.adapter = adapter}).logp;
  };
  const int index = models::freeze_adapter_copy(*model);
  const at::Tensor before = logp(0), base = logp(-1);
  CHECK(tiny::same_bits(logp(index), before));
  CHECK(!tiny::same_bits(base, before));
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (name.find("lora_B") != name.npos) p.set_value(p.value().detach() * 3);
  });
  CHECK(!tiny::same_bits(logp(0), before));
  CHECK(tiny::same_bits(logp(index), before));
  CHECK(tiny::same_bits(logp(-1), base));
}
