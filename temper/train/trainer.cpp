#include "temper/train/trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/dist/peer_watch.h"
#include "temper/metrics/activity.h"
#include "temper/metrics/trace.h"
#include "temper/nn/unit.h"
#include "temper/train/run/agreed_error.h"
#include "temper/train/run/eval_samples.h"
#include "temper/train/run/weights_check.h"

namespace temper::train {

Trainer::Trainer(TrainSection section, uint64_t seed, Roles& roles, const dist::Mesh& mesh,
                 Task& task, std::vector<std::unique_ptr<Hook>> hooks)
    : section_(std::move(section)),
      roles_(roles),
      mesh_(mesh),
      task_(task),
      hooks_(std::move(hooks)),
      steps_(section_.max_steps.value_or(task.planned_steps())),
      train_step_(section_, seed, steps_, roles_, mesh_, task_) {}

bool Trainer::step() {
  if (step_ >= steps_) return false;
  const double start = steady_seconds();
  set_activity_step(step_ + 1);
  for (const auto& hook : hooks_) hook->before_step(step_ + 1);
  std::optional<trace::Span> span(std::in_place, "step", step_ + 1);
  std::optional<StepPlan> plan = next();
  if (!plan) return false;
  image_files_ = std::move(plan->image_files);
  const TrainStep::Passes passes = train_step_.forward_backward(step_ + 1, *plan);
  task_.before_update(step_ + 1);
  row_ = MetricsRow(step_ + 1);
  train_step_.update(step_ + 1, passes.sums, row_);
  ++step_;
  train_step_.describe(*plan, passes, steady_seconds() - start, row_);
  span.reset();
  for (const auto& hook : hooks_) hook->after_step(row_);
  return true;
}

std::optional<StepPlan> Trainer::next() {
  const trace::Span span("next passes");
  return task_.next(step_ + 1);
}

Json Trainer::checkpoint_values(const TaskState& state) const {
  Json values = {{"task", state.values}, {Checkpoints::kEvaluated, evaluated_}};
  for (const auto& hook : hooks_)
    if (!hook->name().empty()) values["hooks"][hook->name()] = hook->state();
  return values;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  const std::string where = checkpoint.directory + "/state.json";
  check<DataError>(checkpoint.values.contains("task"), where, ": no `task`");
  task_.restore({checkpoint.values["task"], checkpoint.tensors}, where);
  const Json kept = checkpoint.values.value("hooks", Json::object());
  for (const auto& hook : hooks_)
    if (kept.is_object() && kept.contains(hook->name())) hook->restore(kept[hook->name()]);
  const Json evaluated = checkpoint.values.value(Checkpoints::kEvaluated, Json());
  evaluated_ = evaluated.is_number_integer() ? evaluated.get<int64_t>() : -1;
  step_ = checkpoint.step;
}

// False: an earlier run of the directory was complete.
bool Trainer::restore_or_start(RunDirectory& directory) {
  directory.open_metrics(steps_, train_step_.metrics());
  if (directory.resumption().is_complete_without_checkpoint(steps_)) {
    directory.say_complete();
    return false;
  }
  const std::optional<Checkpoint> checkpoint = directory.resumption().load(
      roles_.trainables, [this](const Checkpoint& found) { restore(found); });
  if (checkpoint && directory.resumption().is_complete(*checkpoint, steps_)) {
    directory.say_complete();
    return false;
  }
  directory.start(checkpoint ? &*checkpoint : nullptr);
  saved_at_ = steady_seconds();
  for (const auto& hook : hooks_) hook->on_begin(directory);
  task_.begin(step_);
  return true;
}

// Whether it was cut short: then the run is to stop, and the evaluation is made on resuming.
bool Trainer::evaluate(RunDirectory& directory) {
  if (evaluated_ == step_) return false;
  const trace::Span span("evaluation");
  set_activity_step(step_);
  MetricsRow row(step_);
  // Ranks make different numbers of passes.
  std::vector<std::unique_ptr<nn::Gathered>> whole;
  for (nn::Module* model : roles_.models()) whole.push_back(std::make_unique<nn::Gathered>(*model));
  bool asked_to_stop = false;
  const auto stop = [&] {
    dist::check_peers();
    train_step_.memory().check(str("evaluation after step ", step_));
    asked_to_stop = asked_to_stop || directory.host().stop();
    // Ranks that compute the same rows stop at the same one.
    return asked_to_stop = mesh_.same_rows->all_reduce_max(asked_to_stop) > 0;
  };
  bool any = task_.evaluate(row, stop);
  if (!any && mesh_.world->all_reduce_max(asked_to_stop) > 0) return true;
  for (const auto& hook : hooks_) {
    const Hook::Evaluated evaluated = hook->evaluate(row, stop);
    if (evaluated == Hook::Evaluated::kCutShort) return true;
    any = any || evaluated == Hook::Evaluated::kYes;
  }
  if (!any) return false;
  evaluated_ = step_;
  directory.log(row);
  for (const auto& hook : hooks_) hook->on_evaluation(row, directory, roles_);
  if (directory.final_step == step_) kept_tables_ = task_.tables();
  return false;
}

void Trainer::before_save() {
  for (const auto& hook : hooks_) hook->before_save(step_);
}

// Throws NotFinite where the update has made a weight infinite or NaN: no state is saved that
// cannot be trained on.
void Trainer::check_finite() const {
  for (const auto& trainable : roles_.trainables) {
    const std::string found = trainable->optimizer.not_finite();
    const bool any = mesh_.model->all_reduce_max(found.empty() ? 0 : 1) > 0;
    check<NotFinite>(!any, "step ", step_, ": weights of ", trainable->name,
                     " are not finite after its update", found.empty() ? "" : " (" + found + ")",
                     "; try a lower optimizer.learning_rate");
  }
}

void Trainer::save(RunDirectory& directory, bool in_background) {
  before_save();
  write_checkpoint(directory, in_background);
}

void Trainer::tell_of_saves(RunDirectory& directory) {
  for (const int64_t step : directory.saves().take_whole())
    for (const auto& hook : hooks_) hook->on_save(step, directory.path());
}

// The span is what this thread waited for.
void Trainer::write_checkpoint(RunDirectory& directory, bool in_background) {
  const trace::Span span("checkpoint");
  const dist::Saving saving;
  saved_at_ = steady_seconds();
  check_finite();
  if (roles_.policy.model) roles_.policy.model->files.check_unchanged();
  const TaskState state = task_.state();
  directory.save(step_, roles_.trainables, checkpoint_values(state), state.tensors, in_background);
  tell_of_saves(directory);
}

namespace {

// Whether all ranks threw the exception that is being handled.
bool all_threw() {
  try {
    throw;
  } catch (const AgreedError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

// Saves after an error, which the user must read: another error here is only added to it.
void Trainer::rescue(RunDirectory& directory) {
  // State that ranks share out can be saved by all of them only, and this one may be alone here.
  if (is_shared_out(roles_.trainables) && !all_threw()) return;
  directory.settle_saves();
  try {
    train_step_.clear_inputs();
    const bool together = is_shared_out(roles_.trainables);
    const bool lost = together ? mesh_.world->all_reduce_max(directory.is_lost() ? 1 : 0) > 0
                               : directory.is_lost();
    if (lost && !left_) directory.warn(directory.leave_lost(step_, together));
    write_checkpoint(directory, false);
    directory.note(str("saved step ", step_, " after an error"));
  } catch (const std::exception& e) {
    directory.warn(str("step ", step_, " could not be saved either: ", e.what()));
  }
}

Trainer::Agreed Trainer::agree(RunDirectory& directory) {
  const bool due = section_.save_minutes > 0 && directory.is_writer() &&
                   steady_seconds() - saved_at_ > 60 * section_.save_minutes;
  const bool over = train_step_.memory().exceeded();
  const auto step = static_cast<double>(step_);
  std::vector<double> asked{directory.host().stop() ? 1.0 : 0.0,
                            due ? 1.0 : 0.0,
                            directory.saves().is_writing_parts() ? 1.0 : 0.0,
                            over ? 1.0 : 0.0,
                            step,
                            directory.is_lost() ? 1.0 : 0.0};
  mesh_.world->all_reduce_sum(asked);
  check(asked[4] == step * mesh_.world->size(), "the ranks are at different steps: this one at ",
        step_, ", on average at ", asked[4] / mesh_.world->size());
  return {asked[0] > 0, asked[1] > 0, asked[2] == 0, asked[3] > 0, asked[5] > 0};
}

// All ranks call it. What was trained is saved by rescue().
void Trainer::leave_lost(RunDirectory& directory) {
  left_ = true;
  throw AgreedError(directory.leave_lost(step_, true));
}

void Trainer::after_step(RunDirectory& directory) {
  directory.log(row_, {task_.rollout_file(), std::move(image_files_)});
  const auto due = [&](int64_t every) { return every > 0 && step_ % every == 0; };
  if (due(section_.eval_every)) stopped_ = evaluate(directory);
  const Agreed agreed = agree(directory);
  if (agreed.lost) leave_lost(directory);
  directory.saves().look(agreed.parts_written);
  tell_of_saves(directory);
  if (agreed.over_limit) train_step_.memory().fail(str("step ", step_));
  // After the last step the run ends by itself, with a checkpoint that knows its last evaluation.
  const bool last = step_ == steps_;
  using After = RunHost::After;
  const auto& after = directory.host().after_step;
  const After asked = after ? after(step_) : After::kGoOn;
  if (asked == After::kEnd) {
    stopped_ = true;
    return;
  }
  stopped_ = stopped_ || (agreed.stop && !last) || asked == After::kSaveAndEnd;
  if (stopped_ || (!last && (agreed.save || asked == After::kSave || due(section_.save_every))))
    save(directory, !stopped_);
}

// Makes the steps that are left, with evaluations and checkpoints, until the run's end or a stop.
void Trainer::make_steps(RunDirectory& directory) {
  const auto ended = [&] {
    const auto& after = directory.host().after_step;
    if (after && step_ > 0 && after(step_) == RunHost::After::kFinish) return true;
    return std::any_of(hooks_.begin(), hooks_.end(), [](const auto& h) { return h->wants_end(); });
  };
  // Where an evaluation was cut short by a stop, it is made now.
  const bool due = step_ == 0 ? section_.eval_at_start
                              : section_.eval_every > 0 && step_ % section_.eval_every == 0;
  if (due) stopped_ = evaluate(directory);
  while (!stopped_ && !ended() && step()) after_step(directory);
  if (!stopped_ && evaluate(directory)) {
    stopped_ = true;
    save(directory, false);
  }
  if (!stopped_) {
    before_save();
    check_finite();
  }
  directory.saves().finish();
  tell_of_saves(directory);
  if (mesh_.world->all_reduce_max(directory.is_lost() ? 1 : 0) > 0) leave_lost(directory);
}

RunOutcome Trainer::run(RunDirectory& directory) {
  if (!restore_or_start(directory)) return {false, steps_};
  train_step_.before_change = [&directory] { directory.saves().before_change(); };
  train_step_.on_tensors = directory.host().on_tensors;
  const int64_t first = step_;
  try {
    make_steps(directory);
  } catch (const WeightsDiffer&) {
    throw;
  } catch (const NotFinite& e) {
    if (step_ == 0) throw;
    throw NotFinite(e.what() + directory.set_aside(step_));
  } catch (...) {
    // An error in a row, a reward or the disk does not lose what was trained: weights and state are
    // those of the last whole step.
    if (step_ > first) rescue(directory);
    throw;
  }
  finish(directory);
  return {stopped_, step_};
}

// Writes what the run leaves: final models, unless it was stopped, and the report.
void Trainer::finish(RunDirectory& directory) {
  if (!stopped_) {
    const dist::Saving saving;
    const TaskState state = task_.state();
    directory.finish(step_, roles_.trainables, checkpoint_values(state), state.tensors);
  }
  std::vector<std::pair<std::string, std::string>> summary{{"steps", std::to_string(step_)}};
  for (auto& line : task_.summary()) summary.push_back(std::move(line));
  if (!stopped_ && !directory.final_from.empty()) {
    const std::string from =
        directory.final_step < 0 ? "an earlier step" : str("step ", directory.final_step);
    summary.emplace_back("final/", "weights of " + from + ": " + directory.final_reason);
    directory.note(str("final/ has the weights of ", from, ", the best (", directory.final_reason,
                       "); best/ has them too, for a run that goes on"));
  }
  directory.close(std::move(summary), tables_of(directory));
}

// The samples are those of the weights in final/, or their title says that they are others'.
std::vector<Report::Table> Trainer::tables_of(const RunDirectory& directory) const {
  std::vector<Report::Table> tables = task_.tables();
  if (stopped_ || directory.final_from.empty() || directory.final_step == evaluated_) return tables;
  const auto is_of_evaluation = [](const Report::Table& table) {
    return table.title == kEvalSamplesTitle;
  };
  const auto kept = std::find_if(kept_tables_.begin(), kept_tables_.end(), is_of_evaluation);
  for (Report::Table& table : tables) {
    if (!is_of_evaluation(table)) continue;
    if (kept == kept_tables_.end())  // they were of a process before this one
      table.title += str(" (final/ has the weights of step ", directory.final_step, ")");
    else
      table = {str("Samples of the evaluation after step ", directory.final_step,
                   ", whose weights final/ has"),
               kept->header, kept->rows};
  }
  return tables;
}

}  // namespace temper::train
