// The load-balancing loss is transformers', however a step is divided into passes.
#include "temper/train/router_step.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/json.h"
#include "temper/models/files/load.h"
#include "temper/models/files/tensors.h"
#include "temper/train/forward_pass.h"
#include "temper/train/roles/parameters.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::train;

namespace {

struct Golden {
  explicit Golden(const std::string& name)
      : directory(golden_path("models/" + name)),
        tensors(read_safetensors(directory + "/expected.safetensors")),
        json(read_json_file(directory + "/expected.json")),
        rows(json["sequences"].get<std::vector<std::vector<int32_t>>>()) {}
  std::string directory;
  TensorMap tensors;
  Json json;
  std::vector<std::vector<int32_t>> rows;
};

StepPlan plan_of(const Golden& golden, bool one_pass) {
  StepPlan plan;
  for (size_t i = 0; i < golden.rows.size(); ++i) {
    if (!one_pass || i == 0) plan.passes.emplace_back();
    PackUnit unit;
    unit.segments.push_back({-1, golden.rows[i], golden.rows[i], 0});
    plan.passes.back().add(unit, i);
  }
  return plan;
}

struct RoutedStep {
  LossSums sums;
  MetricsRow row;
};

// Leaves the gradients of -logp's mean and half of the load-balancing loss.
RoutedStep run(models::CausalLM& model, StepPlan plan, bool recompute) {
  dist::Mesh mesh;
  RouterStep routers(model, 0.5, mesh);
  routers.begin(plan);
  RoutedStep step;
  double targets = 0;
  for (const ForwardPass& pass : plan.passes) targets += static_cast<double>(pass.num_targets());
  for (const ForwardPass& pass : plan.passes) {
    const at::Tensor logp = token_logp(model, pass, {.recompute = recompute, .watched = true}).logp;
    const at::Tensor total =
        step.sums.add({{{.name = "nll", .value = -logp, .denominator = targets}}, {}});
    routers.before_backward();
    total.backward();
    routers.after_backward();
  }
  routers.end(step.sums);
  routers.describe(step.row);
  return step;
}

}  // namespace

TEST_CASE("the load-balancing loss and its gradients are transformers', in one pass or several") {
  for (const std::string name : {"qwen3_moe", "mixtral", "olmoe", "granitemoe", "gpt_oss"})
    for (const bool one_pass : {true, false})
      for (const bool recompute : {false, true}) {
        CAPTURE(name);
        CAPTURE(one_pass);
        CAPTURE(recompute);
        const Golden golden(name);
        const auto model = models::load_model(golden.directory);
        model->each_parameter([](const std::string&, nn::Parameter& p) {
          p.own();
          p.set_trainable(true);
        });
        const RoutedStep step = run(*model, plan_of(golden, one_pass), recompute);
        const double aux = golden.json["aux_loss"], nll = golden.json["losses"][0];
        CHECK(*step.row.number("router_aux_loss") == doctest::Approx(aux).epsilon(1e-6));
        CHECK(step.sums.total() == doctest::Approx(nll + 0.5 * aux).epsilon(1e-6));
        const double entropy = *step.row.number("expert_entropy");
        CHECK(entropy > 0);
        CHECK(entropy <= std::log(6.0));
        CHECK(*step.row.number("expert_share_max") >= 0.2);
        CHECK(*step.row.number("expert_share_min") <= 0.2);
        int64_t compared = 0;
        for (const NamedParameter& p : trainable_parameters(*model)) {
          const auto found = golden.tensors.find("aux.grad." + p.name);
          if (found == golden.tensors.end()) continue;
          ++compared;
          CAPTURE(p.name);
          const at::Tensor expected = models::to_tensor(found->second, at::kFloat);
          CHECK((p.parameter->value().grad() - expected).abs().max().item<double>() <
                2e-5 * std::max(0.1, expected.abs().max().item<double>()));
        }
        CHECK(compared == 3);  // the embedding and two routers
      }
}

TEST_CASE("a pass that is not the policy's own is not watched") {
  const Golden golden("mixtral");
  const auto model = models::load_model(golden.directory);
  StepPlan plan = plan_of(golden, true);
  dist::Mesh mesh;
  RouterStep routers(*model, std::nullopt, mesh);
  routers.begin(plan);
  token_logp(*model, plan.passes[0], {});
  LossSums sums;
  routers.end(sums);
  MetricsRow row;
  routers.describe(row);
  CHECK(row.values().empty());
  CHECK(sums.terms.empty());
}
