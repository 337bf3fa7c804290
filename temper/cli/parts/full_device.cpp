#include "temper/cli/parts/full_device.h"

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/check/text.h"

namespace temper::cli {
namespace {

std::string first_line(const c10::OutOfMemoryError& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

std::string planned(const checks::MemoryPlan& plan) {
  const checks::MemoryPlan::Phase& peak = plan.peak();
  return str("planned for phase `", peak.name,
             "`: ", checks::megabytes(static_cast<double>(peak.bytes())), " (",
             checks::parts_of(peak), ")");
}

}  // namespace

std::string full_device_message(const c10::OutOfMemoryError& error, const checks::RunShape& run,
                                const checks::MemoryPlan& plan) {
  return str(run.device.str(), " is full: ", first_line(error), "\n", planned(plan), "\n",
             checks::what_takes_less(run), " would take less");
}

std::string full_memory_message(const std::string& what, const checks::RunShape& run,
                                const checks::MemoryPlan& plan) {
  return str(what, "\n", planned(plan), "\nthis process had at most ",
             checks::megabytes(static_cast<double>(peak_memory_bytes())), " and has ",
             checks::megabytes(static_cast<double>(resident_memory_bytes())), "\n",
             checks::what_takes_less(run), " would take less");
}

std::string full_device_message(const c10::OutOfMemoryError& error, const std::string& less) {
  return str("the device is full: ", first_line(error), "\n", less);
}

}  // namespace temper::cli
