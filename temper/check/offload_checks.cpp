// Checks of rows' lengths and memory: what leaves it for a disk, and the longest row for which
// there is enough.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/check/directories.h"
#include "temper/check/memory/disk.h"
#include "temper/check/memory/longest_row.h"
#include "temper/check/run_checks.h"
#include "temper/check/text.h"
#include "temper/models/device.h"
#include "temper/train/offload/directory.h"
#include "temper/train/run/memory_limit.h"

namespace temper::checks {
namespace {

bool on_one_disk(const std::string& a, const std::string& b) {
  struct stat of_a{}, of_b{};
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev;
}

}  // namespace

Finding RunChecks::offload(int64_t planned_steps) const {
  train::check_offload_dir(config);
  if (!plan) return Finding::warn("not checked: the memory could not be planned");
  const std::string directory = existing_parent(train::offload_directory(config)).string();
  const int64_t here = ranks_on_machine().value_or(ranks.product());
  const int64_t files = saturated_product(here, plan->on_disk);
  struct statvfs disk{};
  check<ConfigError>(::statvfs(directory.c_str(), &disk) == 0, directory, ": no file system");
  const auto free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  int64_t needed = files;
  std::string message = str("files of ", megabytes(static_cast<double>(files)), " while it runs");
  if (on_one_disk(directory, existing_parent(config.output_dir).string())) {
    const int64_t peak = plan_disk(shape, config, planned_steps).peak;
    needed = saturated_sum(files, peak);
    message += str(", beside the ", megabytes(static_cast<double>(peak)), " of output_dir");
  }
  message += str("; ", megabytes(static_cast<double>(free)), " free at ", directory);
  const Json values{{"files", files}, {"needed", needed}, {"free", free}};
  if (needed > free)
    return Finding::fail(
        str(config.where(config.train.offload_dir ? "train.offload_dir" : "train.offload"), ": ",
            message, "; another train.offload_dir may have more"),
        values);
  return Finding::pass(message, values);
}

// Of the run as it is, and as it would be with less in memory.
Finding RunChecks::longest_row(int64_t program_bytes) const {
  const auto memory = models::memory_of(shape.device);
  if (!memory) return Finding::warn("not known: the device does not say how much memory it has");
  const int64_t on_machine = ranks_on_machine().value_or(ranks.product());
  int64_t usable = memory->all / models::ranks_on_device(on_machine, shape.device);
  if (const auto limit = train::memory_limit(config)) usable = std::min(usable, *limit);
  std::string message = str("in ", megabytes(static_cast<double>(usable)), " a rank");
  Json values = Json::object();
  int64_t most = 0;
  const auto add = [&](const char* name, const char* with, const RunShape& run) {
    const int64_t tokens = checks::longest_row(run, dividing(), program_bytes, usable);
    values[name] = tokens;
    most = std::max(most, tokens);
    message += str(values.size() == 1 ? ": " : ", ", counted(tokens), " tokens", with);
  };
  RunShape run = shape;
  add("configured", "", run);
  if (!std::exchange(run.recompute, true)) add("recompute", " with train.recompute: blocks", run);
  if (!run.offload_inputs || !run.offload_optimizer) {
    run.offload_inputs = run.offload_optimizer = true;
    if (!config.train.save_in_background) run.snapshot = false;
    add("offload", shape.recompute ? " with train.offload: all" : " and train.offload: all", run);
  }
  const int64_t positions = shape.policy.shape.max_positions;
  if (positions > 0 && positions < most)
    message += str("; the model was made for ", counted(positions));
  return Finding::pass(message, values);
}

}  // namespace temper::checks
