#include "temper/train/run/run_directory.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/clock.h"
#include "temper/base/config/yaml_json.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/memory.h"
#include "temper/base/sha256.h"
#include "temper/base/version.h"
#include "temper/dist/environment.h"
#include "temper/metrics/format.h"
#include "temper/models/files/new_tokens.h"
#include "temper/ops/backend.h"
#include "temper/train/manifest/manifest_inputs.h"
#include "temper/train/offload/directory.h"
#include "temper/train/run/checkpoint/snapshot.h"
#include "temper/train/run/earlier_run.h"
#include "temper/train/run/memory_limit.h"
#include "temper/train/run/whole_directory.h"

namespace temper::train {
namespace fs = std::filesystem;

namespace {

// Keys in a checkpoint's state.
constexpr const char* kInputs = "inputs";    // InputHashes::to_json
constexpr const char* kBackend = "backend";  // ops::Backend::name

// "2026-11-26 23:19 UTC"
std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

}  // namespace

RunDirectory::RunDirectory(RunConfig& config, RunHost host, dist::Mesh mesh)
    : config_(config),
      host_(std::move(host)),
      mesh_(std::move(mesh)),
      checkpoints_(config.output_dir, config.train.keep_checkpoints),
      writer_(std::make_unique<CheckpointWriter>(mesh_)) {
  config.require(!fs::exists(config.output_dir) || fs::is_directory(config.output_dir),
                 "output_dir", config.output_dir, " is not a directory");
  check_separate_output(config);
  check_offload_dir(config);
  std::error_code failed;
  fs::create_directories(config.output_dir, failed);
  config.require(!failed, "output_dir", "cannot make the directory ", config.output_dir, ": ",
                 failed.message());
  if (is_writer()) lock_.emplace(config);
}

RunDirectory::~RunDirectory() = default;

void RunDirectory::open_metrics(int64_t steps, std::vector<MetricInfo> infos) {
  steps_ = steps;
  infos_ = std::move(infos);
  if (!is_writer()) return;
  const std::string old = move_earlier_run(config_);
  moved_ = !old.empty();
  if (moved_)
    host_.console << path() << ": what an earlier run left is now in " << old << std::endl;
  SinkOptions options{config_.output_dir, steps, &host_.console, host_.terminal};
  options.log_every = config_.metrics.log_every;
  options.metrics = infos_;
  const Json config = json_of(parse_yaml(dump_run_config(config_), "config"));
  for (const auto& [name, value] : config.items())
    options.config.emplace_back(name, dump_json(value));
  metrics_ =
      std::make_unique<Metrics>(config_.metrics.sinks, options, config_.where("metrics.sinks"));
}

void RunDirectory::log(const MetricsRow& row, const StepFiles& files) {
  if (metrics_) metrics_->log(row);
  if (row.is_eval()) {
    saved_ = -1;  // hooks have another state now
    return;
  }
  ++metrics_rows_;
  if (manifest_) manifest_->add_step(row, files);
}
void RunDirectory::warn(const std::string& message) {
  if (metrics_) metrics_->warn(message);
}
void RunDirectory::warn_once(const std::string& what, const std::string& message) {
  if (warned_.insert(what).second) warn(message);
}
void RunDirectory::note(const std::string& text) {
  if (metrics_) metrics_->note(text);
}

// Throws DataError where it was made by another verb.
Checkpoint RunDirectory::load(const std::string& directory, const Trainables& trainables) const {
  const Json verb = Checkpoints::verb_of(directory);
  check<DataError>(verb.is_null() || verb == config_.verb.value_or(""), directory,
                   ": a checkpoint of another verb, ", dump_json(verb));
  return Checkpoints::load(directory, trainables);
}

// The moments of another optimizer are of no use to this one.
// Two rules may keep a tensor of one name: the state of one would pass for that of the other.
void RunDirectory::check_optimizer(const std::string& checkpoint) const {
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
std::vector<std::string> RunDirectory::candidates() const {
  const std::vector<std::string> mine = checkpoints_.all();
  return parse_json(mesh_.world->all_gather(dump_json(mine))[0], "rank 0")
      .get<std::vector<std::string>>();
}

// Checkpoints may have been copied here from elsewhere: those of another run of the same model
// would be gone on from without a word.
void RunDirectory::check_same_run(const std::string& checkpoint, const std::string& run_id) const {
  const std::string its = Checkpoints::run_of(checkpoint);
  check<ConfigError>(its.empty() || run_id.empty() || its == run_id, config_.where("output_dir"),
                     ": ", checkpoint, " belongs to another run: found run ", its,
                     " in its state.json, expected ", run_id, " (", path(),
                     "/.lock); move it away, or resume from it with resume=", checkpoint);
}

// A run that goes on from a checkpoint elsewhere, which is named, is a run of its own.
std::string RunDirectory::id_of_run(const Checkpoint* resumed) const {
  if (!resumed) return new_run_id();
  if (!moved_ && !lock_->run_id().empty()) return lock_->run_id();
  const std::vector<std::string> all = checkpoints_.all();
  const bool here = std::find(all.begin(), all.end(), resumed->directory) != all.end();
  const Json its = resumed->values.value(Checkpoints::kRun, Json());
  return here && its.is_string() ? its.get<std::string>() : new_run_id();
}

// Rank 0 reads the files for all ranks.
void RunDirectory::check_whole(const std::string& directory) {
  std::string error;
  bool has_hashes = true;
  try {
    if (is_writer()) has_hashes = Checkpoints::check_files(directory);
  } catch (const std::exception& e) {  // the other ranks wait for the outcome, whatever it is
    error = e.what();
  }
  error = mesh_.world->all_gather(error)[0];
  check<DataError>(error.empty(), error);
  if (!has_hashes)
    note(directory +
         " has no hashes, as an older version wrote it: damage to it, and changes of the files "
         "that the run reads, go unnoticed");
}

std::optional<Checkpoint> RunDirectory::load_checkpoint(
    const Trainables& trainables, const std::function<void(const Checkpoint&)>& restore) {
  const auto attempt = [&](const std::string& directory) {
    check_optimizer(directory);
    check_whole(directory);
    Checkpoint checkpoint = load(directory, trainables);
    restore(checkpoint);
    return checkpoint;
  };
  if (config_.resume == "never") return {};
  config_.require(config_.resume == "auto" || fs::exists(config_.resume), "resume", "found `",
                  config_.resume, "`, expected auto, never or the directory of a checkpoint");
  if (config_.resume != "auto") return attempt(config_.resume);
  std::string first;
  const std::string run_id = mesh_.world->all_gather(lock_ ? lock_->run_id() : "")[0];
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
  check<DataError>(first.empty(), first, "; there is no checkpoint to go on from in ", path(),
                   ": choose another output_dir, or start over with resume=never");
  return {};
}

bool RunDirectory::complete(const Checkpoint& checkpoint, int64_t steps) const {
  // A run may end before its last step where its data does; with another plan it goes on.
  return checkpoint.complete && fs::exists(path() + "/final") &&
         (checkpoint.step >= steps || checkpoint.values.value("planned_steps", Json()) == steps);
}

bool RunDirectory::complete_without_checkpoint(int64_t steps) const {
  const std::vector<std::string> found = checkpoints_.all();
  if (config_.resume != "auto" || found.empty()) return false;
  try {
    if (!Checkpoints::is_record_alone(found[0])) return false;
  } catch (const DataError&) {
    return false;  // a damaged checkpoint is passed over with a warning, where there is another
  }
  const Checkpoint record = Checkpoints::record(found[0]);
  check<ConfigError>(fs::exists(path() + "/final"), config_.where("output_dir"), ": the run in ",
                     path(), " was complete after ", record.step, " steps, and ", path(),
                     "/final, which alone had what it trained, is gone "
                     "(train.keep_final_checkpoint: false leaves no checkpoint to write it from); "
                     "put it back, or train again with resume=never or another output_dir");
  check<ConfigError>(complete(record, steps), config_.where("output_dir"), ": the run in ", path(),
                     " is complete after ", record.step,
                     " steps and kept no checkpoint (train.keep_final_checkpoint: false), so that "
                     "it cannot go on to ",
                     steps, "; model.path: ", path(),
                     "/final in another output_dir trains on from its weights, resume: never "
                     "starts over");
  return true;
}

bool RunDirectory::keeps_metrics() const {
  const std::vector<std::string>& sinks = config_.metrics.sinks;
  return std::find(sinks.begin(), sinks.end(), "jsonl") != sinks.end();
}

// Gives the sinks the rows of metrics.jsonl, and compares their number with that which the
// checkpoint recorded.
void RunDirectory::count_metrics(const Checkpoint* resumed) {
  std::set<int64_t> steps;
  metrics_rows_ = 0;
  for (const MetricsRow& row : read_metrics_file(path() + "/metrics.jsonl")) {
    metrics_->restore(row);
    if (row.is_eval()) continue;
    ++metrics_rows_;
    steps.insert(row.step());
  }
  const std::vector<std::string> all = checkpoints_.all();
  if (!resumed || std::find(all.begin(), all.end(), resumed->directory) == all.end()) return;
  const Json written = resumed->values.value(Checkpoints::kMetricsRows, Json());
  if (!written.is_number_integer() || written == metrics_rows_) return;
  int64_t missing = 1;
  while (missing < resumed->step && steps.contains(missing)) ++missing;
  const bool cut = written.get<int64_t>() > metrics_rows_;
  warn(str(path(), "/metrics.jsonl has rows of ", metrics_rows_, " steps up to step ",
           resumed->step, ", and the run wrote ", dump_json(written), ": it was cut or edited",
           cut ? str(" (there is no row of step ", missing, ")") : "",
           "; curves and report show what is there"));
}

// The differences in the inputs of a resumed run; empty: none.
std::string RunDirectory::changed_inputs(const Checkpoint* resumed) {
  std::vector<InputFile> files = input_files(config_);
  const Json kept = resumed ? resumed->values.value(kInputs, Json()) : Json();
  const ChangedInputs changed = kept.is_array() ? compare_inputs(files, kept) : ChangedInputs();
  const auto listed = [](const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return all;
  };
  if (!changed.frozen.empty())
    return str("the frozen weights are not those that ", resumed->directory,
               " was trained on: ", listed(changed.frozen),
               "; put those back, or start over with resume=never or another output_dir");
  if (!changed.others.empty())
    warn(str("the run continues with files that have changed since ", resumed->directory, ": ",
             listed(changed.others)));
  inputs_changed_ = !changed.others.empty();
  inputs_ = std::make_unique<InputHashes>(std::move(files));
  return {};
}

void RunDirectory::check_inputs(const Checkpoint* resumed) {
  std::string error;
  try {
    if (is_writer() && resumed && keeps_metrics()) {  // before anything is written
      const std::string metrics = path() + "/metrics.jsonl";
      metrics_up_to(resumed->step, read_file(metrics), metrics);
    }
    if (is_writer() && resumed) error = other_new_tokens(config_, *resumed);
    if (is_writer() && error.empty()) error = changed_inputs(resumed);
  } catch (const std::exception& e) {  // the other ranks wait for the outcome, whatever it is
    error = e.what();
  }
  error = mesh_.world->all_gather(error)[0];
  check<ConfigError>(error.empty(), error);
}

namespace {

// The line of a manifest that this run's continues: of the run that the checkpoint is of.
std::string line_continued(const Checkpoint& resumed) {
  const Json known = resumed.values.value(Checkpoints::kManifestLine, Json());
  if (known.is_string()) return known.get<std::string>();
  const std::string run = fs::path(resumed.directory).parent_path().parent_path().string();
  try {
    for (const ManifestLine& line : read_manifest(run + "/manifest.jsonl"))
      if (line.is_step() && line.step() == resumed.step) return sha256_hex(line.text);
  } catch (const Error&) {  // the earlier run answers for it
  }
  return "";
}

}  // namespace

// Goes on with the manifest, or begins one where there is none of the steps before.
void RunDirectory::open_manifest(const Checkpoint* resumed) {
  const std::vector<std::string> all = checkpoints_.all();
  const bool here = resumed && std::find(all.begin(), all.end(), resumed->directory) != all.end();
  const auto directory_of_save = [this](int64_t step, const std::string& directory) {
    if (manifest_) manifest_->complete(step, {{"weights", weight_digests(directory)}});
  };
  checkpoints_.before_commit = directory_of_save;
  Manifest::MakeInputs inputs = manifest_inputs(config_, mesh_);
  try {
    if (here) manifest_ = Manifest::resume(path(), resumed->step);
  } catch (const BrokenManifest& e) {
    warn(str(e.what(), "; a new manifest begins after step ", resumed->step));
  }
  if (!resumed) {
    manifest_ = Manifest::begin(path(), std::move(inputs));
    return;
  }
  const auto continued = [inputs = std::move(inputs), step = resumed->step,
                          weights = manifest_ ? "" : resumed->directory](const auto& cancelled) {
    Json line = {{"after", step}};
    line.update(inputs(cancelled));
    if (!weights.empty()) line["weights"] = weight_digests(weights);
    return line;
  };
  if (!manifest_) {
    manifest_ = Manifest::begin(path(), continued, line_continued(*resumed));
    return;
  }
  const Json before = manifest_->inputs();
  const bool same = before.value("config", Json()) == settings_digest(config_) &&
                    before.value("mesh", Json()) == mesh_of(config_, mesh_);
  if (!same || inputs_changed_) manifest_->add_inputs(continued);
}

void RunDirectory::start(const Checkpoint* resumed) {
  check_inputs(resumed);
  if (!is_writer()) return;
  metrics_->truncate_after(resumed ? resumed->step : -1);
  if (resumed && resumed->values.value(Checkpoints::kEvaluated, Json()) != resumed->step)
    metrics_->remove_evaluation(resumed->step);
  if (keeps_metrics()) count_metrics(resumed);
  resumed_ = resumed != nullptr;
  if (resumed) {
    host_.console << "resuming from " << resumed->directory << std::endl;
    if (const std::string changes = changed_settings(config_); !changes.empty())
      warn("the run continues with settings that differ from before: " + changes);
    const std::string backend = ops::cpu_backend().name();
    const Json before = resumed->values.value(kBackend, Json());
    if (before.is_string() && before != backend)
      warn(str("the run continues on the backend ", backend, ", before it was on ",
               before.get<std::string>(), ": results differ within rounding"));
  }
  for (const std::string& warning : config_.warnings) warn(warning);
  lock_->set_run_id(id_of_run(resumed));
  has_begun_ = true;
  open_manifest(resumed);
  write_file_atomic(path() + "/config.yaml", dump_run_config(config_, true));
  Report begun{title(), {}, {}, dump_run_config(config_)};
  begun.metrics = infos_;
  write_file_atomic(path() + "/report.json", report_record(begun, steps_));
}

std::string RunDirectory::title() const {
  return config_.verb.value_or("run") + " of " + config_.model.path;
}

void RunDirectory::say_complete() {
  if (!is_writer()) return;
  host_.console << path() << ": this run is complete; its model is in final/" << std::endl;
  if (const std::string changes = changed_settings(config_); !changes.empty())
    warn("nothing was trained, although settings differ from those of the run: " + changes +
         "; choose another output_dir, or resume=never to start over");
}

// Decided once: later copies take the memory of the first one, which the allocator keeps.
bool RunDirectory::copy_fits(const Trainables& trainables) {
  if (const std::optional<bool> asked = config_.train.save_in_background) return *asked;
  if (config_.train.offloads_optimizer()) return false;  // a copy would be in memory
  if (copies_) return *copies_;
  int64_t bytes = 0;
  for (const auto& [name, tensors] : trained_files(trainables)) bytes += copied_bytes(tensors);
  const bool fits = fits_for_copies(peak_memory_bytes() + bytes, config_);
  copies_ = is_shared_out(trainables) ? mesh_.world->all_reduce_max(fits ? 0 : 1) == 0 : fits;
  return *copies_;
}

void RunDirectory::note_saved(std::optional<int64_t> step) {
  if (step && is_writer()) whole_.push_back(*step);
}

void RunDirectory::look_at_saves(bool parts_written) {
  const int64_t before = std::exchange(saved_, -1);  // after an error it is not there
  note_saved(writer_->look(parts_written));
  saved_ = before;
}

void RunDirectory::finish_saves() {
  const int64_t before = std::exchange(saved_, -1);
  note_saved(writer_->wait());
  saved_ = before;
}

void RunDirectory::save(int64_t step, const Trainables& trainables, const Json& values,
                        const TensorMap& tensors, bool in_background) {
  finish_saves();
  if (saved_ == step) return;
  if (manifest_) manifest_->await_weights(step);
  Json whole = values;
  whole["verb"] = config_.verb.value_or("");
  whole["planned_steps"] = steps_;
  whole[kBackend] = ops::cpu_backend().name();
  whole[models::kNewTokens] = config_.model.new_tokens;
  whole[Checkpoints::kOptimizer] = config_.optimizer.name;
  if (!config_.data.begun.empty()) whole[Checkpoints::kBegun] = config_.data.begun;
  if (!config_.data.earlier_rules) whole[Checkpoints::kRowRules] = Checkpoints::kRowRulesNow;
  if (keeps_metrics()) whole[Checkpoints::kMetricsRows] = metrics_rows_;
  if (inputs_) whole[kInputs] = inputs_->to_json();
  if (lock_) whole[Checkpoints::kRun] = lock_->run_id();
  if (is_writer() || is_shared_out(trainables)) {
    if (in_background && copy_fits(trainables)) {
      writer_->start(step, checkpoints_.begin_save(step, trainables, whole, tensors, mesh_, true));
    } else {
      checkpoints_.save(step, trainables, whole, tensors, mesh_);
      note_saved(step);
    }
  }
  saved_ = step;
}

std::string RunDirectory::set_aside(int64_t step) {
  try {
    finish_saves();
  } catch (const std::exception& e) {
    warn(str("a checkpoint could not be saved: ", e.what()));
  }
  if (is_writer()) checkpoints_.set_aside(step);
  const std::vector<std::string> all = checkpoints_.all();
  const auto next = std::find_if(all.begin(), all.end(), [](const std::string& directory) {
    try {
      return !Checkpoints::is_set_aside(directory);
    } catch (const Error&) {  // damaged: it is passed over, too
      return false;
    }
  });
  const std::string how = config_.resume == "auto" ? "the same command" : "resume=auto";
  return str(". Step ", step, " is not saved, as its weights gave that; ",
             next == all.end() ? "there is no other checkpoint: resume=never starts over"
                               : how + " goes on from " + *next);
}

void RunDirectory::write(const std::string& name,
                         const std::function<void(const std::string&)>& make) const {
  if (is_writer())
    write_directory(path(), name, make);
  else
    make("");
}

// The checkpoint first, so that an error in writing the models loses nothing; `complete` says that
// they are there.
void RunDirectory::finish(int64_t step, const Trainables& trainables, const Json& values,
                          const TensorMap& tensors) {
  const bool shared = is_shared_out(trainables);
  if (!is_writer() && !shared) return;
  save(step, trainables, values, tensors, false);
  for (const auto& trainable : trainables) {
    if (!trainable->save) continue;
    const bool policy = trainable == trainables.front();
    const std::string from = policy ? final_from : final_from + "-" + trainable->name;
    const std::string to = policy ? "final" : trainable->name;
    bool copies = is_writer() && !final_from.empty() && (policy || fs::exists(path() + "/" + from));
    if (shared) copies = mesh_.world->all_reduce_max(copies) > 0;  // as the writer sees the files
    if (!copies)
      write(to, trainable->save);
    else if (is_writer())
      write(to, [&](const std::string& directory) {
        fs::copy(path() + "/" + from, directory,
                 fs::copy_options::recursive | fs::copy_options::overwrite_existing);
      });
  }
  if (!is_writer()) return;
  complete_manifest(step, trainables);
  finished_ = true;
  checkpoints_.mark_complete(step);
  if (!config_.train.keep_final_checkpoint) checkpoints_.keep_record_alone(step);
}

// Adds the digests of the models that the run leaves.
void RunDirectory::complete_manifest(int64_t step, const Trainables& trainables) {
  Json files = Json::object();
  for (const auto& trainable : trainables) {
    const std::string name = trainable == trainables.front() ? "final" : trainable->name;
    if (trainable->save) add_file_digests(path() + "/" + name, name, files);
  }
  if (!manifest_) return;
  Json members{{"final", files}};
  const auto& after = host_.after_step;
  if (after && after(step) == RunHost::After::kFinish) members[kEndedEarly] = true;
  manifest_->complete(step, members);
}

bool RunDirectory::is_lost() {
  if (!has_begun_) return false;
  if (lock_->make_again())
    warn(str(path(),
             "/.lock was removed while this run was writing there; it is made again, as it "
             "keeps other runs out"));
  return lock_->place() != RunLock::Place::kHeld;
}

std::string RunDirectory::leave_lost(int64_t step, bool together) {
  try {
    finish_saves();
  } catch (const std::exception& e) {
    warn(str("a checkpoint could not be saved: ", e.what()));
  }
  const std::string before = path();
  std::string after = before;
  bool removed = true, rows_are_there = false;
  if (is_writer()) {
    removed = lock_->place() == RunLock::Place::kRemoved;
    if (!removed) after = free_name_beside(before, "rescued");
    rows_are_there = removed && fs::exists(before + "/metrics.jsonl");
    config_.output_dir = after;
    fs::create_directories(after);
    lock_->move_to(config_);
    write_file_atomic(after + "/config.yaml", dump_run_config(config_, true));
  }
  if (together) config_.output_dir = after = mesh_.world->all_gather(after)[0];
  checkpoints_ = Checkpoints(after, config_.train.keep_checkpoints);
  manifest_.reset();
  saved_ = -1;
  return str(before,
             removed ? ", or a part of it, was removed while this run was writing there; the "
                       "state of step "
                     : " has the files of another run, which was begun while this one was writing "
                       "there; the state of step ",
             step, " is saved in ", after,
             removed ? ", and the same command goes on from there"
                     : ", and output_dir=" + after + " goes on from there",
             rows_are_there ? "" : "; earlier rows of metrics are gone");
}

void RunDirectory::close(std::vector<std::pair<std::string, std::string>> summary,
                         std::vector<Report::Table> tables) {
  mesh_.world->barrier();
  if (!is_writer()) return;
  metrics_->finish();
  if (manifest_) manifest_->finish();
  Report page{title(), read_metrics_file(path() + "/metrics.jsonl"), std::move(summary),
              dump_run_config(config_), std::move(tables)};
  page.metrics = infos_;
  if (finished_ && !final_from.empty()) page.final_step = final_step;
  if (page.rows.empty())  // else the page has it from them
    page.summary.emplace_back("peak memory",
                              format_bytes(static_cast<double>(peak_memory_bytes())));
  page.summary.emplace_back("ended", now_text());
  page.summary.emplace_back(resumed_ ? "wall time since it was resumed" : "wall time",
                            format_duration(steady_seconds() - begun_));
  page.summary.emplace_back("host", dist::host_name());
  page.summary.emplace_back("Temper", kVersion);
  write_file_atomic(path() + "/report.json", report_record(page, steps_));
  write_file_atomic(path() + "/report.html", render_report(page));
  check(!is_lost(), path(),
        " was removed, or taken by another run, while this run was writing its last files there; "
        "the same command writes them again where a checkpoint is left");
}

}  // namespace temper::train
