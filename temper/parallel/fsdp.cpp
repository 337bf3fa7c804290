#include "temper/parallel/fsdp.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <atomic>

#include "temper/base/error.h"
#include "temper/parallel/sharded_unit.h"

namespace temper::parallel {
namespace {

// The group's ranks once more, for the units of one model; null where the group is of another kind.
std::shared_ptr<Channel> open_channel(dist::Group& group) {
  static std::atomic<int> opened{0};  // all ranks shard the same models in the same order
  try {
    return std::make_shared<Channel>(group.clone_for_thread(str("units/", opened++)));
  } catch (const RunError&) {
    return nullptr;
  }
}

}  // namespace

void shard(nn::Module& model, const std::shared_ptr<dist::Group>& fsdp) {
  if (fsdp->size() == 1) return;
  std::shared_ptr<UnitSchedule> schedule;
  model.each_module([&](const std::string&, nn::Module& module) {
    if (!module.runs_as_unit() || module.unit()) return;
    if (!schedule) schedule = std::make_shared<UnitSchedule>(*fsdp, open_channel(*fsdp));
    module.set_unit(std::make_shared<FsdpUnit>(module, fsdp, schedule));
  });
  model.each_parameter([](const std::string&, nn::Parameter& parameter) {
    const bool whole = !parameter.placement() || !parameter.placement()->fsdp;
    if (whole && parameter.trainable()) parameter.own();  // it may be mapped from a file
  });
}

}  // namespace temper::parallel
