#include "temper/distill/run.h"

#include <ATen/ATen.h>

#include "temper/distill/task.h"
#include "temper/models/save.h"

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
                                           models::save_weights(*maps, directory, at::kFloat);
                                         }));
}

}  // namespace

train::RunOutcome run_distill(DistillConfig& config, const train::RunHost& host) {
  config.resolve("distill");
  const std::shared_ptr<dist::Group> group = dist::Group::from_environment(host.stop);
  train::Roles roles(config);
  load_teacher(config, roles);
  const std::unique_ptr<Strategy> strategy =
      strategies()
          .find(config.distill.strategy)
          .make({config, *roles.policy.model, roles.teacher->model()});
  add_maps(config, *strategy, roles);
  train::RunDirectory directory(config, host, *group);
  DistillTask task(config, roles, *group, directory, *strategy);
  return train::run_task(config, roles, *group, directory, task);
}

}  // namespace temper::distill
