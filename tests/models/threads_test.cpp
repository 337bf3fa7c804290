// Without gradients several threads may run one model at once: a forward pass changes nothing that
// another could be reading.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "temper/models/files/load.h"
#include "tests/models/golden.h"

using namespace temper;

namespace {

// log p of a sequence of `length` tokens.
at::Tensor logp(models::CausalLM& model, int32_t length) {
  const at::NoGradGuard no_grad;
  std::vector<int32_t> tokens;
  std::vector<int64_t> rows, target;
  for (int32_t i = 0; i < length; ++i) tokens.push_back((5 * i + length) % 60);
  for (int32_t i = 1; i < length; ++i) {
    rows.push_back(i - 1);
    target.push_back(tokens[static_cast<size_t>(i)]);
  }
  auto forest = std::make_shared<Forest>();
  forest->add_root(tokens);
  return model.token_logp(model.forward({.forest = forest}), rows, target).logp;
}

}  // namespace

TEST_CASE(
    "two threads on one model give the bits of one, packs and rotary tables made on the way") {
  for (const char* name : {"qwen3", "gemma3_text"}) {
    CAPTURE(name);
    const auto alone = models::load_model(golden_model(name));
    // Each length needs a longer rotary table than the one before.
    const std::vector<int32_t> lengths{40, 300, 550, 800};
    std::vector<at::Tensor> expected;
    for (const int32_t length : lengths) expected.push_back(logp(*alone, length));
    for (int round = 0; round < 4; ++round) {
      const auto model = models::load_model(golden_model(name));  // nothing is packed yet
      std::atomic<int> ready{0}, equal{0};
      const auto work = [&] {
        ++ready;
        while (ready < 2) std::this_thread::yield();
        for (size_t i = 0; i < lengths.size(); ++i)
          equal += at::equal(logp(*model, lengths[i]), expected[i]);
      };
      std::thread other(work);
      work();
      other.join();
      CHECK(equal == 2 * static_cast<int>(lengths.size()));
    }
  }
}

TEST_CASE("what a reader holds stays as it is while longer tables and other packs are made" *
          doctest::test_suite("exact")) {
  const auto model = models::load_model(golden_model("qwen3"));
  const nn::Rotary rotary({}, 8);
  const ops::RotaryTable early = rotary.table(10, at::kFloat);
  const at::Tensor copy = early.cos.clone();
  const ops::RotaryTable late = rotary.table(2000, at::kFloat);
  CHECK(late.cos.size(0) >= 2000);
  CHECK(at::equal(early.cos, copy));
  CHECK(at::equal(late.cos.narrow(0, 0, early.cos.size(0)), copy));

  const at::NoGradGuard no_grad;
  nn::Parameter& weight = model->body().embedding().weight;
  const at::Tensor before = weight.weight().panels, kept = before.clone();
  CHECK(weight.weight().panels.is_same(before));
  weight.own();
  weight.value().mul_(2);
  weight.mark_updated();
  CHECK(!at::equal(weight.weight().panels, kept));
  CHECK(at::equal(before, kept));
}
