#include "temper/check/memory/traced_pass.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <doctest/doctest.h>
#include <omp.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "temper/check/memory/memory.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/files/load.h"
#include "temper/ops/backend.h"
#include "temper/ops/native/attention_view.h"
#include "temper/ops/native/native.h"
#include "temper/train/forward_pass.h"
#include "tests/models/golden.h"

using namespace temper;
using namespace temper::checks;

namespace {

// The processor's tensors, counted while one lives.
class CountedHost : public c10::Allocator {
 public:
  CountedHost() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountedHost() override { c10::SetCPUAllocator(before_, kPriority); }
  c10::DataPtr allocate(size_t bytes) override {
    struct Held {
      c10::DataPtr data;
      int64_t bytes;
    };
    auto held = std::make_unique<Held>(before_->allocate(bytes), static_cast<int64_t>(bytes));
    live += held->bytes;
    peak = std::max(peak.load(), live.load());
    void* const data = held->data.get();
    return {data, held.release(),
            [](void* context) {
              const std::unique_ptr<Held> gone(static_cast<Held*>(context));
              live -= gone->bytes;
            },
            c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static inline std::atomic<int64_t> live = 0, peak = 0;

 private:
  static constexpr uint8_t kPriority = 100;
  c10::Allocator* const before_;
};

// With what attention's kernels take in tensors that are counted.
class CountedKernels : public ops::NativeBackend {
 public:
  ops::AttentionResult attention(const ops::AttentionSpec& spec, const ops::RotaryTable& rotary,
                                 const Forest& forest, int64_t first, const at::Tensor& q,
                                 const at::Tensor& k, const at::Tensor& v) const override {
    const at::Tensor taken = at::empty({bytes(spec, forest).forward}, at::kByte);
    return NativeBackend::attention(spec, rotary, forest, first, q, k, v);
  }
  ops::AttentionGradients attention_backward(const ops::AttentionSpec& spec,
                                             const ops::RotaryTable& rotary, const Forest& forest,
                                             int64_t first, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const ops::AttentionResult& result,
                                             const at::Tensor& dout) const override {
    const at::Tensor taken = at::empty({bytes(spec, forest).backward}, at::kByte);
    return NativeBackend::attention_backward(spec, rotary, forest, first, q, k, v, result, dout);
  }

 private:
  static kernels::AttentionMemory bytes(const ops::AttentionSpec& spec, const Forest& forest) {
    return kernels::attention_memory(ops::attention_shape(spec), ops::forest_view(spec, forest));
  }
};

constexpr int64_t kTokens = 400, kTargets = 100;

train::ForwardPass pass_of_rows(int64_t rows) {
  const std::vector<int32_t> tokens(kTokens, 1);
  std::vector<int32_t> labels(kTokens, -1);
  std::fill(labels.end() - kTargets, labels.end(), 2);
  train::ForwardPass pass;
  for (int64_t i = 0; i < rows; ++i) {
    train::PackUnit unit;
    unit.segments.push_back({.tokens = tokens, .labels = labels});
    pass.add(unit, static_cast<uint64_t>(i));
  }
  return pass;
}

struct Run {
  bool adapter = false, dropout = false, recompute = false, first = true;
  int64_t rows = 3;
};

// The most that a pass holds of tensors, which computes.
int64_t measured(models::CausalLM& model, const Run& run) {
  ops::choose_cpu_backend(ops::native_backend());
  if (run.adapter)
    models::add_lora(model, {.rank = 4, .dropout = run.dropout ? 0.1 : 0}, 1);
  else
    train_all(model);
  const train::ForwardPass pass = pass_of_rows(run.rows);
  const auto once = [&] {
    const at::Tensor hidden = model.forward(
        train::context_of(pass, {.recompute = run.recompute, .dropout = run.dropout}));
    const at::Tensor logp = model.token_logp(hidden, pass.row_M, pass.target_M).logp;
    torch::autograd::backward({logp}, {at::ones_like(logp)});
  };
  {
    at::NoGradGuard no_grad;
    model.forward(train::context_of(pass, {}));  // tables of positions
  }
  if (!run.first) once();
  static const CountedKernels kernels;
  ops::choose_cpu_backend(kernels);
  const CountedHost counted;
  const int64_t before = CountedHost::peak = CountedHost::live = 0;
  once();
  ops::choose_cpu_backend(ops::native_backend());
  return CountedHost::peak - before;
}

int64_t traced(const models::HfConfig& config, const Run& run) {
  RunShape shape;
  ModelRole& policy = shape.policy;
  policy.shape = shape_of(config);
  policy.storage.device = at::kCPU;
  shape.recompute = run.recompute;
  if (run.adapter) {
    policy.trains = false;
    const std::unique_ptr<models::CausalLM> model = models::make_model(*policy.shape.config);
    models::attach_lora(*model, {});
    policy.adapted = models::adapted_layers(*model);
    policy.rank = 4;
    policy.drops = run.dropout;
    policy.adapters = policy.trained_copies = 1;
  }
  const int64_t gradients = model_bytes(policy, shape.optimizer, {}).gradients;
  const PassPeak peak = traced_pass(
      shape, {run.rows * kTokens, run.rows * kTargets, run.first, kTokens}, {}, gradients);
  return peak.activations.asked + peak.scratch.asked + peak.logits.asked + peak.gradients.asked -
         (run.first ? 0 : gradients);
}

}  // namespace

TEST_CASE("a pass without numbers takes what the pass takes, in every family") {
  for (const std::string& name : golden_models()) {
    if (name == "llama_dynamic" || name == "phi3") continue;  // take short rows alone
    // A mixture's experts take no dropout.
    const bool drops = shape_of(models::HfConfig::load(golden_model(name))).experts == 0;
    for (const Run& run :
         {Run{}, Run{.recompute = true}, Run{.first = false},
          Run{.adapter = true, .dropout = drops}, Run{.adapter = true, .recompute = true}}) {
      CAPTURE(name);
      CAPTURE(run.adapter);
      CAPTURE(run.recompute);
      CAPTURE(run.first);
      const auto model = models::load_model(golden_model(name));
      const auto planned =
                     static_cast<double>(traced(models::HfConfig::load(golden_model(name)), run)),
                 taken = static_cast<double>(measured(*model, run));
      // Temporary copies within attention, its norms and convolutions are not counted; the plan's
      // share for the allocator is as large.
      CHECK(planned < 1.05 * taken);
      CHECK(planned > 0.88 * taken);
    }
  }
}

TEST_CASE("scores that a thread keeps count for every thread") {
  const int before = omp_get_max_threads();
  const auto planned = [](int threads) {
    omp_set_num_threads(threads);
    return traced(models::HfConfig::load(golden_model("llama")), {});
  };
  constexpr int kMany = 200;
  const int64_t one = planned(1), many = planned(kMany);
  omp_set_num_threads(before);
  constexpr int64_t kScores = 48 * kTokens * 4;  // of a block's rows, a thread's
  CHECK(many > kMany * kScores);
  CHECK(many < one + kMany * 4 * kScores);
}

TEST_CASE("blocks that are computed again have an MLP's features of a tile of rows alone") {
  constexpr int64_t kFeatures = 128;
  const auto config = models::HfConfig::parse(
      parse_json(R"({"model_type": "qwen3", "vocab_size": 61, "hidden_size": 32,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": true})",
                 "wide"),
      "wide");
  for (const bool adapter : {false, true}) {
    CAPTURE(adapter);
    Run few{.adapter = adapter, .recompute = true, .rows = 10}, many = few;  // tiles of 2,000 rows
    many.rows = 20;
    const auto taken = [&](const Run& run) {
      return measured(*models::init_model(config, 1), run);
    };
    // Less than gate, up, their product and the gradients of these take of the further rows.
    const int64_t bound = (many.rows - few.rows) * kTokens * 6 * kFeatures * 4;
    CHECK(taken(many) - taken(few) < bound);
    CHECK(traced(config, many) - traced(config, few) < bound);
  }
}
