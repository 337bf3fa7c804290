// The check of a run's output_dir, and of what the run goes on from.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/check/directories.h"
#include "temper/check/kept_warnings.h"
#include "temper/check/run_checks.h"
#include "temper/train/run/checkpoint/resumption.h"
#include "temper/train/run/earlier_run.h"
#include "temper/train/run/run_lock.h"

namespace temper::checks {
namespace fs = std::filesystem;
namespace {

// Where the run begins anew.
Finding begins(const train::RunConfig& config, const std::string& moved) {
  const std::string& directory = config.output_dir;
  const Json values{{"state", "new"}};
  if (!moved.empty())
    return Finding::warn(moved + (config.resume == "never" ? " (resume: never)" : ""), values);
  if (fs::exists(directory) && !fs::is_empty(directory))
    return Finding::warn(directory + " has files, but no checkpoint: the run begins anew there",
                         values);
  return Finding::pass(directory + " is new", values);
}

Finding is_complete(train::RunConfig& config, int64_t step) {
  const std::string changes = train::changed_settings(config);
  return Finding::warn(str(config.output_dir, ": this run is complete; nothing would be trained",
                           changes.empty() ? "" : ", although settings differ: " + changes),
                       {{"state", "complete"}, {"step", step}});
}

Finding goes_on(train::RunConfig& config, const train::Checkpoint& from, const std::string& moved,
                const std::vector<std::string>& warnings) {
  const std::string changes = moved.empty() ? train::changed_settings(config) : "";
  std::string message = config.resume == "auto" ? str("goes on from step ", from.step)
                                                : "resumes from " + from.directory;
  if (!changes.empty()) message += " of a run with other settings: " + changes;
  if (!moved.empty()) message += "; " + moved;
  for (const std::string& warning : warnings) message += "; " + warning;
  const bool as_before = changes.empty() && moved.empty() && warnings.empty();
  const Json values{{"state", changes.empty() ? "resume" : "other_config"}, {"step", from.step}};
  return as_before ? Finding::pass(message, values) : Finding::warn(message, values);
}

}  // namespace

// As Trainer::restore_or_start, without weights.
Finding RunChecks::output_dir(int64_t planned_steps) {
  const std::string& directory = config.output_dir;
  check_writable(directory, config.where("output_dir"));
  train::check_separate_output(config);
  config.require(!train::is_running(directory), "output_dir", "another run is writing to ",
                 directory);
  const std::string moved = !fs::exists(directory) || train::earlier_files(config).empty()
                                ? ""
                                : directory +
                                      " holds files of an earlier run, which are moved to " +
                                      train::free_name_beside(directory, "old");
  const dist::Mesh alone;
  const train::Checkpoints checkpoints(directory, config.train.keep_checkpoints);
  KeptWarnings kept;
  const train::Resumption resumption(config, alone, checkpoints, train::RunLock::run_in(directory),
                                     kept);
  if (resumption.is_complete_without_checkpoint(planned_steps))
    return is_complete(config, train::Checkpoints::record(checkpoints.all()[0]).step);
  const std::optional<train::Checkpoint> found =
      resumption.choose([this](const std::string& checkpoint) {
        return train::Checkpoints::check_trained(checkpoint, trainables_);
      });
  if (!found) return begins(config, moved);
  if (resumption.is_complete(*found, planned_steps)) return is_complete(config, found->step);
  resumption.compare_inputs(&*found, moved.empty());
  return goes_on(config, *found, moved, kept.warnings);
}

}  // namespace temper::checks
