// Checks a run before it starts: `temper check`.
#pragma once

#include "temper/check/memory/mesh_plan.h"
#include "temper/check/run_checks.h"
#include "temper/distill/config.h"
#include "temper/preference/config.h"
#include "temper/rl/algorithms/ppo.h"

namespace temper::checks {

// Asks everything that the config's verb needs (config.verb), in one order. The names of the checks
// are the same whatever they find.
void check_run(RunChecks& checks, train::SftConfig& config);
void check_run(RunChecks& checks, preference::PreferenceConfig& config);
void check_run(RunChecks& checks, distill::DistillConfig& config);
void check_run(RunChecks& checks, rl::RlConfig& config);
void check_run(RunChecks& checks, rl::PpoConfig& config);

// "train.eval_rewards" and one for each of them, where there are any; plans what they sample,
// before finish().
void check_eval_rewards(RunChecks& checks);

// Checks for another machine: those of the model, which missing weights do not fail, and every mesh
// of the devices. What the machine leaves open (its rows and step) is taken from the config, and
// set in it.
std::vector<MeshCost> check_meshes(RunChecks& checks, Machine& machine);

}  // namespace temper::checks
