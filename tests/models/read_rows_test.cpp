// nn::Context::rows: a last block that leaves out what nobody reads changes nothing of what is
// read.
#include "temper/nn/weights/read_rows.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <map>

#include "temper/models/adapters/adapter.h"
#include "temper/models/files/load.h"
#include "temper/ops/layers/embedding.h"
#include "temper/train/roles/parameters.h"
#include "tests/models/golden.h"

using namespace temper;

namespace {

std::unique_ptr<models::CausalLM> trainable_model(const std::string& name) {
  auto model = models::load_model(golden_model(name));
  train_all(*model);
  return model;
}

const std::vector<int64_t> kRows{1, 2, 9, 14};
const std::vector<int64_t> kTarget{3, 5, 7, 9};

struct Result {
  at::Tensor logp;
  std::map<std::string, at::Tensor> gradient;
};

Result run(models::CausalLM& model, bool leaves_out, bool recompute, bool dropout) {
  auto forest = std::make_shared<Forest>();
  forest->add_root(std::vector<int32_t>{4, 8, 15, 16, 23, 42, 10, 11, 12});
  forest->add_root(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7});
  nn::DropoutKeys keys{.seed = 5, .step = 3, .token = {}};
  for (uint64_t i = 0; i < 16; ++i) keys.token.push_back(i * 7);
  nn::Context context{.forest = forest};
  if (leaves_out) context.rows = nn::rows_to_read(kRows, forest->num_tokens());
  if (dropout) context.dropout = &keys;
  context.recompute = recompute;
  Result result;
  for (const train::NamedParameter& p : train::trainable_parameters(model))
    p.parameter->value().mutable_grad() = at::Tensor();
  result.logp = model.token_logp(model.forward(context), kRows, kTarget).logp;
  result.logp.sum().backward();
  for (const train::NamedParameter& p : train::trainable_parameters(model))
    result.gradient[p.name] = p.parameter->value().grad();
  return result;
}

void check_close(const Result& whole, const Result& part) {
  CHECK(at::equal(part.logp, whole.logp));
  REQUIRE(part.gradient.size() == whole.gradient.size());
  for (const auto& [name, expected] : whole.gradient) {
    CAPTURE(name);
    const at::Tensor& found = part.gradient.at(name);
    REQUIRE(found.defined());
    const double largest = expected.abs().max().item<double>();
    CHECK((found - expected).abs().max().item<double>() <= 2e-6 * largest);
  }
}

}  // namespace

TEST_CASE("rows that nobody reads are left out of the last block alone") {
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"}) {
    CAPTURE(name);
    const auto model = trainable_model(name);
    const Result whole = run(*model, false, false, false), part = run(*model, true, false, false);
    check_close(whole, part);
    const Result again = run(*model, true, true, false);
    CHECK(at::equal(again.logp, part.logp));
    for (const auto& [parameter, gradient] : part.gradient)
      CHECK(at::equal(again.gradient.at(parameter), gradient));
  }
}

TEST_CASE("an adapter's dropout is that of the row, whichever rows are read") {
  const auto model = trainable_model("qwen3");
  models::LoraConfig config;
  config.rank = 4;
  config.dropout = 0.5;
  models::add_lora(*model, config, 3);
  model->each_parameter([](const std::string& name, nn::Parameter& p) {
    if (name.find("lora_B") != std::string::npos)
      p.set_value(at::sin(at::arange(p.value().numel(), at::kFloat)).reshape(p.value().sizes()));
  });
  const Result whole = run(*model, false, false, true), part = run(*model, true, false, true);
  check_close(whole, part);
  CHECK(!at::equal(whole.logp, run(*model, false, false, false).logp));
}

TEST_CASE("rows to read: ascending, each once; all of them where few are left out") {
  CHECK(*nn::rows_to_read({5, 2, 5, 0}, 10) == std::vector<int64_t>{0, 2, 5});
  CHECK(nn::rows_to_read({0, 1, 2, 3, 4, 5, 6, 7}, 9) == nullptr);
}

TEST_CASE("place_rows undoes select_rows, forwards and backwards") {
  at::Tensor x = at::arange(12, at::kFloat).reshape({4, 3}).requires_grad_(true);
  const std::vector<int64_t> rows{1, 3};
  const at::Tensor back = ops::place_rows(ops::select_rows(x, rows), rows, 4);
  CHECK(at::equal(back, x * at::tensor({0.f, 1.f, 0.f, 1.f}).unsqueeze(1)));
  (back * back).sum().backward();
  CHECK(at::equal(x.grad(), 2 * back.detach()));
  CHECK_THROWS(ops::place_rows(x, {0, 1, 2, 4}, 4));
}
