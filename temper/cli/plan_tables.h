// How `temper check` shows what it found.
#pragma once

#include <ostream>
#include <span>
#include <string>

#include "temper/plan/check_list.h"
#include "temper/plan/mesh_plan.h"

namespace temper::cli {

void print_checks(std::ostream& out, const plan::CheckList& list, const plan::MemoryPlan* memory);
void print_meshes(std::ostream& out, const plan::RunShape& run, const plan::Machine& machine,
                  std::span<const plan::MeshCost> meshes);
// {"checks": [..], "plan": {..}, "meshes": [..]}: the last where there are any. `memory`: null
// where nothing could be planned.
std::string json_of(const plan::CheckList& list, const plan::MemoryPlan* memory,
                    std::span<const plan::MeshCost> meshes);

}  // namespace temper::cli
