// Collects the messages that XGrammar logs while it works.
#pragma once

#include <string>
#include <vector>

namespace temper::grammar {

// Collects the warnings of this thread while it lives. Without one, they are dropped.
class LogOfThread {
 public:
  LogOfThread();
  ~LogOfThread();
  LogOfThread(const LogOfThread&) = delete;
  LogOfThread& operator=(const LogOfThread&) = delete;
  std::vector<std::string>& warnings() { return warnings_; }

 private:
  std::vector<std::string> warnings_;
};

}  // namespace temper::grammar
