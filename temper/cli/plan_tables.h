// How `temper check` shows what it found.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>

#include "temper/base/json.h"
#include "temper/plan/check_list.h"
#include "temper/plan/mesh_plan.h"
#include "temper/plan/run_checks.h"

namespace temper::cli {

void print_checks(std::ostream& out, const plan::CheckList& list, const plan::MemoryPlan* memory);
void print_meshes(std::ostream& out, const plan::RunShape& run, const plan::Machine& machine,
                  std::span<const plan::MeshCost> meshes);
// The learning rate over the steps, as columns of blocks; of fewer than three steps nothing.
void print_rates(std::ostream& out, std::span<const plan::LearningRate> rates);
// {"checks": [..], "plan": {..}, "meshes": [..], "shown": {..}}: the last two where there are any.
// `memory`: null where nothing could be planned.
std::string json_of(const plan::CheckList& list, const plan::MemoryPlan* memory,
                    std::span<const plan::MeshCost> meshes, const Json& shown = nullptr);

}  // namespace temper::cli
