// Training from one's own program: a model, rows and a task of one's own, and a loop that calls
// trainer.step() itself.
//   own_trainer        (no arguments, no files)
#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "temper/models/files/load.h"
#include "temper/train/trainer.h"

namespace train = temper::train;

// Next-token prediction on rows of token ids: each step learns from eight of them.
class CountingTask : public train::Task {
 public:
  explicit CountingTask(train::Roles& roles) : model_(*roles.policy.model) {}

  int64_t planned_steps() const override { return 200; }

  // The forward passes of a step. The trainer asks for their losses one after the other; so many
  // tokens fit into memory at once, and the gradient is the same however the rows are split.
  std::optional<train::StepPlan> next(int64_t step) override {
    rows_.clear();
    for (int64_t row = 0; row < 8; ++row) rows_.push_back(count_up(8 * step + row));
    train::StepPlan plan;
    std::vector<train::PackUnit> units;
    for (const std::vector<int32_t>& row : rows_) {
      units.push_back({.segments = {{.tokens = row, .labels = row}}});
      plan.tokens += static_cast<double>(row.size());
      plan.supervised_tokens += static_cast<double>(row.size() - 1);  // the first has no past
    }
    targets_ = plan.supervised_tokens;
    plan.passes = train::plan_passes(units, kTokensInPass);
    return plan;
  }

  // The sum of -log p over the pass's tokens, over the number of targets of the whole step.
  train::Loss loss(const train::ForwardPass& pass) override {
    const at::Tensor logp_M = train::token_logp(model_, pass, {}).logp;
    return {.terms = {{.name = "nll", .value = logp_M.neg(), .denominator = targets_}}};
  }

  train::TaskState state() const override { return {}; }  // next() needs nothing but the step
  void restore(const train::TaskState&, const std::string&) override {}

 private:
  static constexpr int64_t kTokensInPass = 48;
  static std::vector<int32_t> count_up(int64_t start) {
    std::vector<int32_t> row;
    for (int64_t i = 0; i < 12; ++i) row.push_back(static_cast<int32_t>((start + i) % 50));
    return row;
  }

  temper::models::CausalLM& model_;
  std::vector<std::vector<int32_t>> rows_;
  double targets_ = 1;
};

int main() {
  const temper::Json config = {{"model_type", "llama"},      {"vocab_size", 50},
                               {"hidden_size", 64},          {"intermediate_size", 128},
                               {"num_hidden_layers", 2},     {"num_attention_heads", 2},
                               {"tie_word_embeddings", true}};
  train::Policy policy;  // all its weights train
  policy.model =
      temper::models::init_model(temper::models::HfConfig::parse(config, "own_trainer"), 1);
  policy.model->each_parameter(
      [](const std::string&, temper::nn::Parameter& p) { p.set_trainable(true); });

  train::OptimizerSection optimizer;
  optimizer.learning_rate = 1e-2;
  train::Roles roles(std::move(policy), optimizer);
  CountingTask task(roles);
  const auto group = temper::dist::Group::from_environment();  // one rank, or torchrun's
  train::Trainer trainer({}, 0, roles, *group, task);
  while (trainer.step())
    std::cout << "step " << trainer.steps_made() << " loss " << *trainer.row().number("loss")
              << std::endl;
}
