// How `temper check` shows what it found.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>

#include "temper/base/json.h"
#include "temper/check/check_list.h"
#include "temper/check/memory/mesh_plan.h"
#include "temper/check/run_checks.h"

namespace temper::cli {

void print_checks(std::ostream& out, const checks::CheckList& list,
                  const checks::MemoryPlan* memory);
void print_meshes(std::ostream& out, const checks::RunShape& run, const checks::Machine& machine,
                  std::span<const checks::MeshCost> meshes);
// The learning rate over the steps, as columns of blocks; of fewer than three steps nothing.
void print_rates(std::ostream& out, std::span<const checks::LearningRate> rates);
// {"checks": [..], "plan": {..}, "meshes": [..], "shown": {..}}: the last two where there are any.
// `memory`: null where nothing could be planned.
std::string json_of(const checks::CheckList& list, const checks::MemoryPlan* memory,
                    std::span<const checks::MeshCost> meshes, const Json& shown = nullptr);

}  // namespace temper::cli
