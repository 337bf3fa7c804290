// What a finished run says: where its model and report are, and commands to try on them.
#pragma once

#include <string>

#include "temper/distill/config.h"
#include "temper/preference/config.h"
#include "temper/rl/config.h"
#include "temper/train/sft/sft.h"

namespace temper::cli {

// The flags with which `temper eval` judges what the run learned on its own kind of rows: "--reward
// exact --max-new-tokens 64", "--pairs", "--perplexity". Empty: no flags do, as after a run with
// several rewards or an environment, of KTO (rows without pairs), or on completions that a
// distilled student sampled.
std::string eval_flags(const train::SftConfig& config);
std::string eval_flags(const distill::DistillConfig& config);
std::string eval_flags(const preference::PreferenceConfig& config);
std::string eval_flags(const rl::RlConfig& config);

// Several lines, for a run whose files are in config.output_dir.
std::string next_steps(const train::RunConfig& config, const std::string& eval_flags);

}  // namespace temper::cli
