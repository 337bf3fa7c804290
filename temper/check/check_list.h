// Results of the checks of a run before it starts, a line for each.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/json.h"

namespace temper::checks {

struct Finding {
  enum class Status { kPass, kWarn, kFail };
  Status status = Status::kPass;
  std::string message;
  Json values = {};  // numbers of the message, by name

  static Finding pass(std::string message, Json values = {}) {
    return {Status::kPass, std::move(message), std::move(values)};
  }
  static Finding warn(std::string message, Json values = {}) {
    return {Status::kWarn, std::move(message), std::move(values)};
  }
  static Finding fail(std::string message, Json values = {}) {
    return {Status::kFail, std::move(message), std::move(values)};
  }
};
const char* name_of(Finding::Status status);  // "pass", "warn", "fail"

class CheckList {
 public:
  struct Check {
    std::string name;
    Finding finding;
  };
  // Adds what `work` finds; an Error that it throws is a failure. False: it failed. Names are
  // unique: a second of one name gets a number.
  bool run(const std::string& name, const std::function<Finding()>& work);
  void add(const std::string& name, Finding finding);
  // Adds a check that could not be made because another one failed.
  void skip(const std::string& name, const std::string& because);

  const std::vector<Check>& checks() const { return checks_; }
  bool failed() const;

 private:
  std::vector<Check> checks_;
};

}  // namespace temper::checks
