// What a finished run says: where its model and report are, and commands to try on them.
#pragma once

#include <string>

#include "temper/rl/config.h"
#include "temper/train/config.h"

namespace temper::cli {

// The flags with which `temper eval` judges as the run did: "--reward exact --max-new-tokens 64".
// Empty: no flags say that, as the run had no reward, several, or an environment.
std::string eval_flags(const train::RunConfig& config);
std::string eval_flags(const rl::RlConfig& config);

// Several lines, for a run whose files are in config.output_dir.
std::string next_steps(const train::RunConfig& config, const std::string& eval_flags);

}  // namespace temper::cli
