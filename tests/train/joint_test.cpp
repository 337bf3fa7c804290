// Runs that share a base and its passes.
#include <torch/csrc/autograd/autograd.h>

#include "temper/models/adapters/adapter.h"
#include "temper/train/joint/joint_runs.h"
#include "tests/golden.h"
#include "tests/train/tiny.h"

using namespace temper;

namespace {

struct Made {
  std::vector<float> gradients;  // of the adapter
  std::string error;
};

// A run of one pass under an adapter of its own, which may fail before it goes back.
Made one_pass(uint64_t seed, bool fails) {
  Made made;
  try {
    train::JointRun& run = *train::JointRun::current();
    const auto model = run.load(golden_path("models/llama"), {});
    const models::LoraConfig lora{.rank = 2};
    models::add_lora(*model, lora, seed);
    run.share_passes(*model, lora);
    const std::vector<int32_t> row = tiny::rows(1, static_cast<int64_t>(seed)).at(0);
    train::ForwardPass pass;
    pass.add({{{-1, row, row, 0}}}, 0);
    const at::Tensor logp = train::token_logp(*model, pass, {.recompute = true}).logp;
    check<RunError>(!fails, "failed between the passes");
    torch::autograd::backward({logp}, {at::ones_like(logp)});
    for (const train::NamedParameter& p : train::trainable_parameters(*model)) {
      const at::Tensor& g = p.parameter->trained().grad();
      if (!g.defined()) continue;
      const at::Tensor all = g.contiguous();
      made.gradients.insert(made.gradients.end(), all.const_data_ptr<float>(),
                            all.const_data_ptr<float>() + all.numel());
    }
  } catch (const std::exception& e) {
    made.error = e.what();
  }
  return made;
}

}  // namespace

TEST_CASE("a run that fails between the passes leaves others their backward pass") {
  constexpr int64_t kTokens = 1 << 20;
  Made alone, failed, whole;
  train::JointRuns(kTokens).run({[&] { alone = one_pass(2, false); }});
  CHECK(alone.error.empty());
  REQUIRE(!alone.gradients.empty());
  for (const bool first : {true, false}) {
    CAPTURE(first);
    const auto fails = [&] { failed = one_pass(1, true); };
    const auto goes_on = [&] { whole = one_pass(2, false); };
    if (first)
      train::JointRuns(kTokens).run({fails, goes_on});
    else
      train::JointRuns(kTokens).run({goes_on, fails});
    CHECK(failed.error == "failed between the passes");
    CHECK(whole.error.empty());
    CHECK(whole.gradients == alone.gradients);
  }
}
