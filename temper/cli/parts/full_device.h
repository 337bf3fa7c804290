// What a run says that has no memory left.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "temper/check/memory/memory.h"

namespace temper::cli {

// What the device's allocator said, the plan of the run's largest phase, and the keys to lower.
std::string full_device_message(const c10::OutOfMemoryError& error, const checks::RunShape& run,
                                const checks::MemoryPlan& plan);
// `what` happened; the plan of the run's largest phase, what this process has had, and the keys to
// lower.
std::string full_memory_message(const std::string& what, const checks::RunShape& run,
                                const checks::MemoryPlan& plan);
// The same where there is no plan: of `verb`'s run, or of sampling and scoring.
std::string full_device_message(const c10::OutOfMemoryError& error, const std::string& less);

}  // namespace temper::cli
