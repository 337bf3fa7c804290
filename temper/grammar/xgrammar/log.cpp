#include "temper/grammar/xgrammar/log.h"

#include <stdexcept>

#include "support/logging.h"

namespace temper::grammar {
namespace {
thread_local LogOfThread* log_of_thread = nullptr;
}

LogOfThread::LogOfThread() { log_of_thread = this; }
LogOfThread::~LogOfThread() { log_of_thread = nullptr; }

void add_warning(const std::string& message) {
  if (log_of_thread) log_of_thread->warnings().push_back(message);
}

}  // namespace temper::grammar

// The library's own hooks, by its names.
namespace xgrammar {

namespace {
// An error without the source location that XGrammar's own message begins with.
class Refusal : public LogFatalError {
 public:
  using LogFatalError::LogFatalError;
  const char* what() const noexcept override { return std::runtime_error::what(); }
};
}  // namespace

void LogFatalImpl(const std::string& file, int line, const std::string& message) {
  throw Refusal(file, line, message);
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level >= XGRAMMAR_LOG_LEVEL_WARNING) temper::grammar::add_warning(message);
}

}  // namespace xgrammar
