#include <ATen/ATen.h>

#include "temper/distill/task.h"
#include "temper/models/files/save.h"

namespace temper::distill {
namespace {

// A strategy's maps train with an optimizer of their own and are left in OUTPUT_DIR/projection.
void add_maps(const DistillConfig& config, Strategy& strategy, train::Roles& roles) {
  nn::Module* maps = strategy.maps();
  if (!maps) return;
  train::OptimizerSection section = config.optimizer;
  section.learning_rate = config.distill.projection_learning_rate.value_or(section.learning_rate);
  section.groups.clear();  // they name parameters of the student
  roles.trainables.push_back(
      std::make_unique<train::Trainable>("projection", section, train::trainable_parameters(*maps),
                                         [maps](const std::string& directory) {
                                           models::save_parameters(*maps, directory, at::kFloat);
                                         }));
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(const DistillConfig& config, train::Roles& roles) {
  StrategyContext context{config, *roles.policy.model,
                          roles.teacher ? roles.teacher->model() : nullptr, roles.policy.tokenizer,
                          roles.policy.tokenizer};
  if (config.crosses())
    context.teacher_tokenizer = Tokenizer::load_directory(teacher_directory(config));
  std::unique_ptr<Strategy> strategy = strategies().find(config.distill.strategy).make(context);
  add_maps(config, *strategy, roles);
  return strategy;
}

}  // namespace temper::distill
