// Proves a run before it starts: `temper check`.
#pragma once

#include "temper/distill/config.h"
#include "temper/plan/mesh_plan.h"
#include "temper/plan/run_checks.h"
#include "temper/preference/config.h"
#include "temper/rl/ppo_config.h"

namespace temper::plan {

// Asks everything that the config's verb needs (config.verb), in one order. The names of the checks
// are the same whatever they find.
void check_run(RunChecks& checks, train::SftConfig& config);
void check_run(RunChecks& checks, preference::PreferenceConfig& config);
void check_run(RunChecks& checks, distill::DistillConfig& config);
void check_run(RunChecks& checks, rl::RlConfig& config);
void check_run(RunChecks& checks, rl::PpoConfig& config);

// Of other machines: the model's checks, which weights that are not there do not fail, and every
// mesh of the devices. What the machine leaves open (its rows and step) is the config's, and is set
// in it.
std::vector<MeshCost> check_meshes(RunChecks& checks, Machine& machine);

}  // namespace temper::plan
