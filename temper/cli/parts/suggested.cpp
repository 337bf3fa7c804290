#include "temper/cli/parts/suggested.h"

#include <iostream>

#include "temper/generate/sampling/suggested_sampling.h"

namespace temper::cli {

void follow_suggested(const CLI::App& app, const std::string& model_dir,
                      generate::SamplingOptions& sampling) {
  const auto not_given = [&](const generate::SamplingOption& option) {
    return app.count(option.flag()) == 0;
  };
  const std::string taken = generate::take_suggested(model_dir, sampling, not_given);
  if (!taken.empty())
    std::cerr << "sampling as generation_config.json suggests: " << taken << "; flags win"
              << std::endl;
}

void say_what_is_used(const std::string& model_dir, const generate::SamplingOptions& sampling) {
  generate::SamplingOptions suggested = sampling;
  const std::string says = generate::take_suggested(model_dir, suggested);
  const std::string used = generate::described(sampling);
  if (generate::described(suggested) != used)
    std::cerr << "sampling with " << used << "; generation_config.json suggests " << says
              << std::endl;
}

}  // namespace temper::cli
