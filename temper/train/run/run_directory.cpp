#include "temper/train/run/run_directory.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/models/files/new_tokens.h"
#include "temper/ops/backend.h"
#include "temper/train/manifest/continued.h"
#include "temper/train/offload/directory.h"
#include "temper/train/run/best_weights.h"
#include "temper/train/run/checkpoint/parallel_write.h"
#include "temper/train/run/earlier_run.h"
#include "temper/train/run/whole_directory.h"

namespace temper::train {
namespace fs = std::filesystem;

RunDirectory::RunDirectory(RunConfig& config, RunHost host, dist::Mesh mesh)
    : config_(config),
      host_(std::move(host)),
      mesh_(std::move(mesh)),
      checkpoints_(config.output_dir, config.train.keep_checkpoints),
      metrics_(config),
      saves_(config, checkpoints_, mesh_) {
  config.require(!fs::exists(config.output_dir) || fs::is_directory(config.output_dir),
                 "output_dir", config.output_dir, " is not a directory");
  check_separate_output(config);
  check_offload_dir(config);
  std::error_code failed;
  fs::create_directories(config.output_dir, failed);
  config.require(!failed, "output_dir", "cannot make the directory ", config.output_dir, ": ",
                 failed.message());
  if (is_writer()) lock_.emplace(config);
  resumption_.emplace(config, mesh_, checkpoints_, lock_ ? lock_->run_id() : "", *this);
}

RunDirectory::~RunDirectory() = default;

void RunDirectory::open_metrics(int64_t steps, std::vector<MetricInfo> infos) {
  steps_ = steps;
  if (!is_writer()) return;
  const std::string old = move_earlier_run(config_);
  moved_ = !old.empty();
  if (moved_)
    host_.console << path() << ": what an earlier run left is now in " << old << std::endl;
  metrics_.open(steps, std::move(infos), host_.console, host_.terminal);
}

void RunDirectory::log(const MetricsRow& row, const StepFiles& files) {
  metrics_.log(row);
  if (row.is_eval())
    saves_.forget();  // hooks have another state now
  else if (manifest_)
    manifest_->add_step(row, files);
}
void RunDirectory::warn(const std::string& message) { metrics_.warn(message); }
void RunDirectory::warn_once(const std::string& what, const std::string& message) {
  if (warned_.insert(what).second) warn(message);
}
void RunDirectory::note(const std::string& text) { metrics_.note(text); }

// A run that goes on from a checkpoint elsewhere, which is named, is a run of its own.
std::string RunDirectory::id_of_run(const Checkpoint* resumed, bool own) const {
  if (!resumed) return new_run_id();
  if (!moved_ && !lock_->run_id().empty()) return lock_->run_id();
  const Json its = resumed->values.value(Checkpoints::kRun, Json());
  return own && its.is_string() ? its.get<std::string>() : new_run_id();
}

void RunDirectory::start(const Checkpoint* resumed) {
  if (resumed) begun_at_ = resumed->directory;
  Resumption::Inputs inputs = resumption_->check_inputs(resumed);
  if (!is_writer()) return;
  inputs_ = std::move(inputs.hashes);
  const bool own = resumed && checkpoints_.has(resumed->directory);
  metrics_.resume(resumed, own);
  if (resumed) {
    host_.console << "resuming from " << resumed->directory << std::endl;
    resumption_->warn_of_changes(*resumed);
  }
  for (const std::string& warning : config_.warnings) warn(warning);
  lock_->set_run_id(id_of_run(resumed, own));
  has_begun_ = true;
  checkpoints_.before_commit = [this](int64_t step, const std::string& directory) {
    if (manifest_) manifest_->complete(step, {{"weights", weight_digests(directory)}});
  };
  manifest_ = open_manifest(config_, mesh_, resumed, own, inputs.changed,
                            [this](const std::string& message) { warn(message); });
  write_file_atomic(path() + "/config.yaml", dump_run_config(config_, true));
  metrics_.write_begun_report();
}

void RunDirectory::say_complete() {
  if (!is_writer()) return;
  host_.console << path() << ": this run is complete; its model is in final/" << std::endl;
  if (const std::string changes = changed_settings(config_); !changes.empty())
    warn("nothing was trained, although settings differ from those of the run: " + changes +
         "; choose another output_dir, or resume=never to start over");
}

void RunDirectory::save(int64_t step, const Trainables& trainables, const Json& values,
                        const TensorMap& tensors, bool in_background) {
  saves_.finish();
  if (saves_.has(step)) return;
  if (manifest_) manifest_->await_weights(step);
  Json whole = values;
  whole["verb"] = config_.verb.value_or("");
  whole["planned_steps"] = steps_;
  whole[Checkpoints::kBackend] = ops::cpu_backend().name();
  whole[models::kNewTokens] = config_.model.new_tokens;
  whole[Checkpoints::kOptimizer] = config_.optimizer.name;
  if (!config_.data.begun.empty()) whole[Checkpoints::kBegun] = config_.data.begun;
  if (!config_.data.earlier_rules) whole[Checkpoints::kRowRules] = Checkpoints::kRowRulesNow;
  if (keeps_rows(config_)) whole[Checkpoints::kMetricsRows] = metrics_.rows();
  if (inputs_) whole[Checkpoints::kInputs] = inputs_->to_json();
  if (lock_) whole[Checkpoints::kRun] = lock_->run_id();
  saves_.write(step, trainables, whole, tensors, in_background);
}

void RunDirectory::settle_saves() {
  try {
    saves_.finish();
  } catch (const std::exception& e) {
    warn(str("a checkpoint could not be saved: ", e.what()));
  }
}

std::string RunDirectory::set_aside(int64_t step) {
  settle_saves();
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

bool RunDirectory::take_best() const {
  bool has = false;
  on_all(*mesh_.world,
         [&] { has = is_writer() && !begun_at_.empty() && train::take_best(begun_at_, path()); });
  return mesh_.world->all_reduce_max(has ? 1 : 0) > 0;
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
        fs::remove(directory + "/" + kBestRecord);
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
  settle_saves();
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
  saves_.forget();
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
  metrics_.finish();
  if (manifest_) manifest_->finish();
  metrics_.write_report(std::move(summary), std::move(tables),
                        finished_ && !final_from.empty() ? final_step : -1);
  check(!is_lost(), path(),
        " was removed, or taken by another run, while this run was writing its last files there; "
        "the same command writes them again where a checkpoint is left");
}

}  // namespace temper::train
