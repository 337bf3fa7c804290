#include "temper/distill/run.h"

#include <optional>

#include "temper/distill/task.h"
#include "temper/distill/teacher_file.h"
#include "temper/train/ranks.h"
#include "temper/train/run_task.h"

namespace temper::distill {

train::RunOutcome run_distill(DistillConfig& config, const train::RunHost& host) {
  config.resolve("distill");
  take_file_date(config);
  const dist::Mesh mesh = train::join_mesh(config, host);
  dist::Mesh undivided = mesh;
  if (!config.divides_layers()) undivided.tensor = dist::alone();
  train::Roles roles(config, undivided);
  std::unique_ptr<RemoteTeacher> remote;
  if (config.distill.teacher_logprobs)
    remote = open_teacher_file(config, roles.policy.model->vocab_size);
  std::optional<Teachers> teachers;
  if (!remote) teachers.emplace(config, roles);
  const std::unique_ptr<Strategy> strategy = make_strategy(config, roles);
  train::RunDirectory directory(config, host, mesh);
  DistillTask task(config, roles, *mesh.data_parallel, directory, *strategy,
                   teachers ? &*teachers : nullptr, remote.get());
  return train::run_task(config, roles, mesh, directory, task);
}

}  // namespace temper::distill
