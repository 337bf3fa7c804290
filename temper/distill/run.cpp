#include "temper/distill/run.h"

#include "temper/distill/task.h"
#include "temper/distill/teacher_file.h"

namespace temper::distill {

train::RunOutcome run_distill(DistillConfig& config, const train::RunHost& host) {
  config.resolve("distill");
  const std::shared_ptr<dist::Group> group = dist::Group::from_environment(host.stop);
  train::Roles roles(config);
  std::unique_ptr<RemoteTeacher> remote;
  if (config.distill.teacher_logprobs)
    remote = open_teacher_file(*config.distill.teacher_logprobs, roles.policy.model->vocab_size,
                               config.distill.top_k, config.where("distill.teacher_logprobs"));
  else
    load_teacher(config, roles);
  const std::unique_ptr<Strategy> strategy = make_strategy(config, roles);
  train::RunDirectory directory(config, host, *group);
  DistillTask task(config, roles, *group, directory, *strategy, remote.get());
  return train::run_task(config, roles, *group, directory, task);
}

}  // namespace temper::distill
