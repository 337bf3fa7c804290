// Messages of a run to its user, besides metrics.
#pragma once

#include <string>

namespace temper::train {

// Receives a task's messages to the user.
class Messages {
 public:
  virtual ~Messages() = default;
  // `what` names the warning: it is printed once a run.
  virtual void warn_once(const std::string& what, const std::string& message) = 0;
  virtual void note(const std::string& text) = 0;  // a line on the console
};

}  // namespace temper::train
