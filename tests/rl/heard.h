// What a run warns of.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "temper/train/messages.h"

namespace tiny {

struct Heard : temper::train::Messages {
  void warn_once(const std::string& what, const std::string& message) override {
    warnings.emplace_back(what, message);
  }
  void note(const std::string&) override {}
  std::vector<std::pair<std::string, std::string>> warnings;
};

}  // namespace tiny
