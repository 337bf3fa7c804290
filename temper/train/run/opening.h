// The messages of a run before its first step, so that a mistake in its config is seen at once.
#pragma once

#include <memory>
#include <string>

#include "temper/data/loader.h"
#include "temper/train/hooks.h"
#include "temper/train/roles/roles.h"
#include "temper/train/task.h"

namespace temper::train {

// Notes which model trains, how many of its parameters, on what, and for how many steps. Made
// before ranks share out the parameters; its arguments must outlive it.
std::unique_ptr<Hook> opening(const RunConfig& config, const Roles& roles, const dist::Mesh& mesh,
                              const Task& task);

// "20,000 rows, 190,123 tokens; 3 rows are left out": for Task::work.
std::string text_of(const data::RowOrder& order, const data::RowSurvey& survey);

}  // namespace temper::train
