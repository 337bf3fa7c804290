// Flags of sampling beside what a model's generation_config.json suggests.
#pragma once

#include <string>

#include "temper/cli/options.h"

namespace temper::cli {

// Takes what the file suggests for flags that were not given, and says so on stderr where that is
// anything. `app` has parsed the flags of SamplingFlags. Throws DataError.
void follow_suggested(const CLI::App& app, const std::string& model_dir,
                      generate::SamplingOptions& sampling);
// Where the file suggests something else than what is used, says both on stderr. Throws DataError.
void say_what_is_used(const std::string& model_dir, const generate::SamplingOptions& sampling);

}  // namespace temper::cli
