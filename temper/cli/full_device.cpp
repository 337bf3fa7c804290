#include "temper/cli/full_device.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/plan/text.h"

namespace temper::cli {
namespace {

std::string first_line(const c10::OutOfMemoryError& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::string full_device_message(const c10::OutOfMemoryError& error, const plan::RunShape& run,
                                const plan::MemoryPlan& plan) {
  const plan::MemoryPlan::Phase& peak = plan.peak();
  plan::Parts parts = peak.parts;
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string planned;
  for (const auto& [name, bytes] : parts)
    if (bytes > 0) planned += str(planned.empty() ? "" : ", ", name, " ", plan::megabytes(bytes));
  return str(run.device.str(), " is full: ", first_line(error), "\nplanned for phase `", peak.name,
             "`: ", plan::megabytes(peak.bytes()), " (", planned, ")\n", plan::what_takes_less(run),
             " would take less");
}

std::string full_device_message(const c10::OutOfMemoryError& error, const std::string& less) {
  return str("the device is full: ", first_line(error), "\n", less);
}

}  // namespace temper::cli
