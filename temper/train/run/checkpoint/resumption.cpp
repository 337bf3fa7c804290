#include "temper/train/run/checkpoint/resumption.h"

#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/ops/backend.h"
#include "temper/train/run/earlier_run.h"
#include "temper/train/run/run_metrics.h"

namespace temper::train {
namespace fs = std::filesystem;

// Throws DataError where it was made by another verb.
void Resumption::check_verb(const std::string& checkpoint) const {
  const Json verb = Checkpoints::verb_of(checkpoint);
  check<DataError>(verb.is_null() || verb == config_.verb.value_or(""), checkpoint,
                   ": a checkpoint of another verb, ", dump_json(verb));
}

// The moments of another optimizer are of no use to this one.
// Two rules may keep a tensor of one name: the state of one would pass for that of the other.
void Resumption::check_optimizer(const std::string& checkpoint) const {
  const std::string its = Checkpoints::optimizer_of(checkpoint);
  check<ConfigError>(its.empty() || its == config_.optimizer.name, config_.where("optimizer.name"),
                     ": found ", config_.optimizer.name, ", and ", checkpoint, " has the state of ",
                     its,
                     config_.resume == "auto"
                         ? "; go on with that, or choose another output_dir, or resume=never to "
                           "start over"
                         : "; go on with that");
}

// The checkpoints as rank 0 sees them, so that all ranks try the same ones.
std::vector<std::string> Resumption::candidates() const {
  const std::vector<std::string> mine = checkpoints_.all();
  return parse_json(mesh_.world->all_gather(dump_json(mine))[0], "rank 0")
      .get<std::vector<std::string>>();
}

// Checkpoints may have been copied here from elsewhere: those of another run of the same model
// would be gone on from without a word.
void Resumption::check_same_run(const std::string& checkpoint, const std::string& run_id) const {
  const std::string its = Checkpoints::run_of(checkpoint);
  check<ConfigError>(its.empty() || run_id.empty() || its == run_id, config_.where("output_dir"),
                     ": ", checkpoint, " belongs to another run: found run ", its,
                     " in its state.json, expected ", run_id, " (", config_.output_dir,
                     "/.lock); move it away, or resume from it with resume=", checkpoint);
}

// Rank 0 reads the files for all ranks.
void Resumption::check_whole(const std::string& directory) const {
  std::string error;
  bool has_hashes = true;
  try {
    if (is_writer()) has_hashes = Checkpoints::check_files(directory);
  } catch (const std::exception& e) {  // the other ranks wait for the outcome, whatever it is
    error = e.what();
  }
  error = mesh_.world->all_gather(error)[0];
  check<DataError>(error.empty(), error,
                   config_.resume == "auto" ? "" : "; resume=auto takes the newest whole one");
  if (!has_hashes)
    messages_.note(
        directory +
        " has no hashes, as an older version wrote it: damage to it, and changes of the files "
        "that the run reads, go unnoticed");
}

std::optional<Checkpoint> Resumption::load(
    const Trainables& trainables, const std::function<void(const Checkpoint&)>& restore) const {
  return choose([&](const std::string& directory) {
    Checkpoint checkpoint = Checkpoints::load(directory, trainables);
    restore(checkpoint);
    return checkpoint;
  });
}

std::optional<Checkpoint> Resumption::choose(const Read& read) const {
  const auto attempt = [&](const std::string& directory) {
    check_optimizer(directory);
    check_whole(directory);
    check_verb(directory);
    return read(directory);
  };
  if (config_.resume == "never") return {};
  config_.require(config_.resume == "auto" || fs::exists(config_.resume), "resume", "found `",
                  config_.resume, "`, expected auto, never or the directory of a checkpoint");
  if (config_.resume != "auto") return attempt(config_.resume);
  std::string first;
  const std::string run_id = mesh_.world->all_gather(run_id_)[0];
  for (const std::string& directory : candidates()) {
    try {
      check_same_run(directory, run_id);
      check<DataError>(!Checkpoints::is_set_aside(directory), directory,
                       ": its weights gave no finite gradient; resume=", directory,
                       " goes on from it all the same, resume=never starts over");
      return attempt(directory);
    } catch (const DataError& e) {
      if (first.empty()) first = e.what();
      warn(str("skipped a checkpoint: ", e.what()));
    }
  }
  check<DataError>(first.empty(), first, "; there is no checkpoint to go on from in ",
                   config_.output_dir,
                   ": choose another output_dir, or start over with resume=never");
  return {};
}

bool Resumption::is_complete(const Checkpoint& checkpoint, int64_t steps) const {
  // A run may end before its last step where its data does; with another plan it goes on.
  return checkpoint.complete && fs::exists(config_.output_dir + "/final") &&
         (checkpoint.step >= steps || checkpoint.values.value("planned_steps", Json()) == steps);
}

bool Resumption::is_complete_without_checkpoint(int64_t steps) const {
  const std::vector<std::string> found = checkpoints_.all();
  if (config_.resume != "auto" || found.empty()) return false;
  try {
    if (!Checkpoints::is_record_alone(found[0])) return false;
  } catch (const DataError&) {
    return false;  // a damaged checkpoint is passed over with a warning, where there is another
  }
  const Checkpoint record = Checkpoints::record(found[0]);
  check<ConfigError>(fs::exists(config_.output_dir + "/final"), config_.where("output_dir"),
                     ": the run in ", config_.output_dir, " was complete after ", record.step,
                     " steps, and ", config_.output_dir,
                     "/final, which alone had what it trained, is gone "
                     "(train.keep_final_checkpoint: false leaves no checkpoint to write it from); "
                     "put it back, or train again with resume=never or another output_dir");
  check<ConfigError>(is_complete(record, steps), config_.where("output_dir"), ": the run in ",
                     config_.output_dir, " is complete after ", record.step,
                     " steps and kept no checkpoint (train.keep_final_checkpoint: false), so that "
                     "it cannot go on to ",
                     steps, "; model.path: ", config_.output_dir,
                     "/final in another output_dir trains on from its weights, resume: never "
                     "starts over");
  return true;
}

Resumption::Compared Resumption::compare_inputs(const Checkpoint* resumed, bool metrics) const {
  if (resumed && metrics) check_kept_rows(config_, resumed->step);  // before anything is written
  const std::string tokens = resumed ? other_new_tokens(config_, *resumed) : "";
  check<ConfigError>(tokens.empty(), tokens);
  Compared compared{input_files(config_)};
  const Json kept = resumed ? resumed->values.value(Checkpoints::kInputs, Json()) : Json();
  const ChangedInputs changed =
      kept.is_array() ? train::compare_inputs(compared.files, kept) : ChangedInputs();
  const auto listed = [](const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return all;
  };
  if (!changed.frozen.empty())
    throw ConfigError(
        str("the frozen weights are not those that ", resumed->directory,
            " was trained on: ", listed(changed.frozen),
            "; put those back, or start over with resume=never or another output_dir"));
  compared.changed = !changed.others.empty();
  if (compared.changed)
    warn(str("the run continues with files that have changed since ", resumed->directory, ": ",
             listed(changed.others)));
  return compared;
}

Resumption::Inputs Resumption::check_inputs(const Checkpoint* resumed) const {
  Inputs inputs;
  std::string error;
  try {
    if (is_writer()) {
      Compared compared = compare_inputs(resumed, true);
      inputs.changed = compared.changed;
      inputs.hashes = std::make_unique<InputHashes>(std::move(compared.files));
    }
  } catch (const std::exception& e) {  // the other ranks wait for the outcome, whatever it is
    error = e.what();
  }
  error = mesh_.world->all_gather(error)[0];
  check<ConfigError>(error.empty(), error);
  return inputs;
}

void Resumption::warn_of_changes(const Checkpoint& resumed) const {
  if (const std::string changes = changed_settings(config_); !changes.empty())
    warn("the run continues with settings that differ from before: " + changes);
  const std::string backend = ops::cpu_backend().name();
  const Json before = resumed.values.value(Checkpoints::kBackend, Json());
  if (before.is_string() && before != backend)
    warn(str("the run continues on the backend ", backend, ", before it was on ",
             before.get<std::string>(), ": results differ within rounding"));
}

}  // namespace temper::train
