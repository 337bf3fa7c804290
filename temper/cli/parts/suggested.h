// Sampling flags and the defaults that a model's generation_config.json suggests.
#pragma once

#include <string>

#include "temper/cli/parts/options.h"

namespace temper::cli {

// Sets the options whose flags were not given to what the file suggests, and says on stderr which.
// `app` has parsed the flags of SamplingFlags. Throws DataError.
void follow_suggested(const CLI::App& app, const std::string& model_dir,
                      generate::SamplingOptions& sampling);
// Where the options differ from what the file suggests, prints both to stderr. Throws DataError.
void say_what_is_used(const std::string& model_dir, const generate::SamplingOptions& sampling);

}  // namespace temper::cli
