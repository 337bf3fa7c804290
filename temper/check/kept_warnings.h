// The warnings of what a check asks as the run does.
#pragma once

#include <string>
#include <vector>

#include "temper/train/messages.h"

namespace temper::checks {

struct KeptWarnings : train::Messages {
  void warn_once(const std::string&, const std::string& message) override {
    warnings.push_back(message);
  }
  void note(const std::string&) override {}
  std::vector<std::string> warnings;
};

}  // namespace temper::checks
