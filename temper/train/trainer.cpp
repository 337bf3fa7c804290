#include "temper/train/trainer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/dist/peer_watch.h"
#include "temper/metrics/activity.h"
#include "temper/metrics/trace.h"
#include "temper/models/vision/encoder.h"
#include "temper/nn/unit.h"
#include "temper/parallel/fsdp.h"
#include "temper/train/offload/directory.h"
#include "temper/train/optimizers/schedule.h"
#include "temper/train/ranks.h"
#include "temper/train/run/agreed_error.h"
#include "temper/train/run/eval_samples.h"
#include "temper/train/run/opening.h"
#include "temper/train/run/reward_evaluation.h"
#include "temper/train/run/weights_check.h"

namespace temper::train {

std::vector<MetricInfo> trainer_metrics() {
  return {
      {"loss", "", "loss",
       "the step's loss; in SFT the mean negative log-likelihood per supervised token, in nats",
       "SFT: falls; RL: near 0, not a measure of progress", true},
      {"loss/*", "", "terms of the loss", "a term of the loss, with its coefficient"},
      {"grad_norm", "", "gradient norm", "global L2 norm before clipping",
       "steady; spikes above 10x its usual value are a warning", true, "grad norm"},
      {"learning_rate", "", "learning rate", "learning rate of the step", "", true, "lr"},
      {"tokens_per_second", "tokens/s", "speed", "tokens of the step's rows per second", "", true,
       "tok/s"},
      {"step_seconds", "s", "time", "wall time of the step"},
      {"peak_memory_bytes", "bytes", "memory",
       "peak resident memory of the process so far, the largest of all ranks'",
       "below the machine's memory"},
      {"tokens", "tokens", "tokens", "tokens of the step's rows, each in full"},
      {"tokens_computed", "tokens", "tokens_computed",
       "tokens that went through the model, shared prefixes once"},
      {"supervised_tokens", "tokens", "supervised_tokens", "tokens that the loss counts",
       "above 0"},
      {"padding_tokens", "tokens", "padding_tokens", "always 0", "0"},
      {"images", "", "images", "images of the step's rows, a shared prompt's once"},
      {"image_tokens", "tokens", "image_tokens", "tokens that stand for these images"},
  };
}

Trainer::Trainer(TrainSection section, uint64_t seed, Roles& roles, const dist::Mesh& mesh,
                 Task& task, std::vector<std::unique_ptr<Hook>> hooks)
    : section_(std::move(section)),
      seed_(seed),
      roles_(roles),
      mesh_(mesh),
      task_(task),
      hooks_(std::move(hooks)),
      steps_(section_.max_steps.value_or(task.planned_steps())),
      memory_(section_) {
  const models::CausalLM* const policy = roles_.policy.model.get();
  const bool sparse = policy && policy->config().experts > 0;
  check_router_loss(section_.router_aux_loss, sparse);
  if (sparse) routers_.emplace(*roles_.policy.model, section_.router_aux_loss, mesh_);
  for (nn::Module* model : roles_.models()) parallel::shard(*model, mesh_.fsdp);
  for (const auto& trainable : roles_.trainables) trainable->shared_out = mesh_.model->size() > 1;
  if (!section_.offloads_inputs() && !section_.offloads_optimizer()) return;
  check(section_.offload_dir.has_value(), "train.offload without a directory");
  const std::string& directory = *section_.offload_dir;
  const std::string what = str("train.offload: ", directory);
  if (section_.offloads_inputs()) inputs_ = std::make_unique<DiskInputs>(directory, what);
  if (section_.offloads_optimizer())
    for (const auto& trainable : roles_.trainables)
      trainable->optimizer.store_state_in(std::make_unique<DiskState>(directory, what));
}

namespace {

// As messages write it: whether a NaN has a sign is up to the machine.
double unsigned_nan(double value) { return std::isnan(value) ? std::abs(value) : value; }

}  // namespace

bool Trainer::step() {
  if (step_ >= steps_) return false;
  const double start = steady_seconds();
  set_activity_step(step_ + 1);
  for (const auto& hook : hooks_) hook->before_step(step_ + 1);
  std::optional<trace::Span> span(std::in_place, "step", step_ + 1);
  std::optional<StepPlan> plan = next();
  if (!plan) return false;
  image_files_ = std::move(plan->image_files);
  if (on_tensors_) on_tensors_(step_ + 1, "weight", roles_.trainables);
  double tokens_computed = 0;
  const LossSums sums = forward_backward(*plan, tokens_computed);
  task_.before_update(step_ + 1);
  row_ = MetricsRow(step_ + 1);
  update(sums);
  ++step_;
  describe(*plan, sums, tokens_computed, steady_seconds() - start);
  span.reset();
  for (const auto& hook : hooks_) hook->after_step(row_);
  return true;
}

void StepPlan::count_images(std::span<const PackUnit> units) {
  for (const PackUnit& unit : units) {
    images += unit.num_images();
    image_tokens += unit.num_image_tokens();
    for (const PackUnit::Segment& segment : unit.segments)
      for (const ImageSpan& span : segment.images)
        if (!span.image->path().empty()) image_files[span.image->path()] = span.image->digest();
  }
}

std::optional<StepPlan> Trainer::next() {
  const trace::Span span("next passes");
  return task_.next(step_ + 1);
}

// What several ranks look at together, once all have made the step's passes.
void Trainer::check_memory() const {
  if (memory_.has_limit() && mesh_.world->all_reduce_max(memory_.exceeded() ? 1 : 0) > 0)
    memory_.fail(str("step ", step_ + 1));
}

namespace {

// The part of vision towers in a step: the passes read their features, and end() gives towers the
// gradients of these.
class TowerSteps {
 public:
  explicit TowerSteps(std::vector<models::Encoder*> encoders) : encoders_(std::move(encoders)) {
    for (models::Encoder* encoder : encoders_) encoder->begin_step();
  }
  ~TowerSteps() {
    for (models::Encoder* encoder : encoders_) encoder->abandon_step();
  }
  TowerSteps(const TowerSteps&) = delete;
  TowerSteps& operator=(const TowerSteps&) = delete;
  void end() {
    if (encoders_.empty()) return;
    const trace::Span span("backward of vision towers");
    for (models::Encoder* encoder : encoders_) encoder->end_step();
    encoders_.clear();
  }

 private:
  std::vector<models::Encoder*> encoders_;
};

}  // namespace

LossSums Trainer::forward_backward(StepPlan& plan, double& tokens_computed) {
  LossSums sums;
  TowerSteps towers(roles_.trained_encoders());
  // A step that an error ended may have left gradients.
  for (const auto& trainable : roles_.trainables) trainable->optimizer.zero_grad();
  for (ForwardPass& pass : plan.passes) {
    pass.dropout.seed = seed_;
    pass.dropout.step = static_cast<uint64_t>(step_ + 1);
    pass.dropout.noise_alpha = section_.neftune_alpha;
    pass.inputs = inputs_.get();
  }
  if (routers_) routers_->begin(plan);
  Activity activity("training: pass", std::ssize(plan.passes));
  for (ForwardPass& pass : plan.passes) {
    activity.advance();
    dist::check_peers();  // passes may take minutes until the next sum over ranks
    LossSums nowhere;
    LossSums& counted = pass.shadow ? nowhere : sums;
    tokens_computed += static_cast<double>(pass.forest->num_tokens());
    if (!pass.trains() && !plan.every_token) continue;
    const at::Tensor total = [&] {
      const trace::Span span("forward");
      return counted.add(task_.loss(pass));
    }();
    const trace::Span span("backward");
    if (routers_) routers_->before_backward();
    if (total.defined())
      torch::autograd::backward({total}, {pass.shadow ? at::zeros_like(total) : at::Tensor()});
    if (routers_) routers_->after_backward();
    memory_.check(str("step ", step_ + 1));
  }
  towers.end();
  check_memory();
  std::vector<double> computed{tokens_computed};
  mesh_.data_parallel->all_reduce_sum(computed);
  tokens_computed = computed[0];
  sums.reduce(*mesh_.data_parallel);
  if (routers_) routers_->end(sums);
  return sums;
}

void Trainer::update(const LossSums& sums) {
  {
    const trace::Span span("sum of gradients over ranks");
    reduce_gradients(mesh_, roles_.trainables);
  }
  const double loss = sums.total();
  row_.set("loss", loss);
  std::vector<double> norms;
  for (const auto& trainable : roles_.trainables) {
    norms.push_back(trainable->optimizer.grad_norm(mesh_));
    if (std::isfinite(loss) && std::isfinite(norms.back())) continue;
    for (const auto& other : roles_.trainables) other->optimizer.zero_grad();
    throw NotFinite(str(
        "step ", step_ + 1, ": the loss is ", unsigned_nan(loss), " and the gradient's norm (",
        trainable->name, ") ", unsigned_nan(norms.back()),
        step_ == 0 ? "; nothing was trained yet: the model's weights may contain NaN or infinite "
                     "values, or overflow"
                   : "; check rows and rewards, or try a lower optimizer.learning_rate"));
  }
  if (on_tensors_) on_tensors_(step_ + 1, "gradient", roles_.trainables);
  before_change_();
  const trace::Span span("optimizer");
  for (size_t i = 0; i < norms.size(); ++i) {
    Trainable& trainable = *roles_.trainables[i];
    const double limit = trainable.settings.max_grad_norm;
    const bool frozen = step_ < trainable.frozen_steps;
    const double rate = frozen ? 0 : learning_rate(trainable.settings, step_ + 1, steps_);
    if (frozen)
      trainable.optimizer.zero_grad();
    else
      trainable.optimizer.step(rate, limit > 0 ? std::min(1.0, limit / (norms[i] + 1e-6)) : 1.0);
    const std::string prefix = i == 0 ? "" : trainable.name + "_";
    row_.set(prefix + "grad_norm", norms[i]);
    row_.set(prefix + "learning_rate", rate);
  }
  if (on_tensors_) on_tensors_(step_ + 1, "updated", roles_.trainables);
}

void Trainer::describe(const StepPlan& plan, const LossSums& sums, double tokens_computed,
                       double seconds) {
  row_.set("tokens", static_cast<int64_t>(plan.tokens));
  row_.set("tokens_computed", static_cast<int64_t>(tokens_computed));
  row_.set("supervised_tokens", static_cast<int64_t>(plan.supervised_tokens));
  row_.set("padding_tokens", 0);
  if (plan.image_tokens > 0) {
    row_.set("images", plan.images);
    row_.set("image_tokens", plan.image_tokens);
  }
  const auto parts = std::count_if(sums.terms.begin(), sums.terms.end(),
                                   [](const LossSums::Sum& term) { return !term.separate; });
  for (const LossSums::Sum& term : sums.terms)
    if (term.separate || parts > 1)
      row_.set(term.separate ? term.name : "loss/" + term.name, term.value());
  for (const LossSums::Sum& mean : sums.means) row_.set(mean.name, mean.value());
  if (routers_) routers_->describe(row_);
  task_.describe_step(row_);
  row_.set("step_seconds", seconds);
  row_.set("tokens_per_second", plan.tokens / seconds);
  row_.set(
      "peak_memory_bytes",
      static_cast<int64_t>(mesh_.world->all_reduce_max(static_cast<double>(peak_memory_bytes()))));
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
  std::vector<MetricInfo> infos = task_.metrics();
  for (MetricInfo& info : trainer_metrics()) infos.push_back(std::move(info));
  if (routers_)
    for (MetricInfo& info : RouterStep::metrics()) infos.push_back(std::move(info));
  directory.open_metrics(steps_, std::move(infos));
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
    memory_.check(str("evaluation after step ", step_));
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
    if (inputs_) inputs_->clear();
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
  const bool over = memory_.exceeded();
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
  if (agreed.over_limit) memory_.fail(str("step ", step_));
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

RunOutcome Trainer::run(RunDirectory& directory) {
  if (!restore_or_start(directory)) return {false, steps_};
  before_change_ = [&directory] { directory.saves().before_change(); };
  on_tensors_ = directory.host().on_tensors;
  const auto ended = [&] {
    const auto& after = directory.host().after_step;
    if (after && step_ > 0 && after(step_) == RunHost::After::kFinish) return true;
    return std::any_of(hooks_.begin(), hooks_.end(), [](const auto& h) { return h->wants_end(); });
  };
  const int64_t first = step_;
  try {
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
  return {stopped_, step_};
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

RunOutcome run_task(RunConfig& config, Roles& roles, const dist::Mesh& mesh,
                    RunDirectory& directory, Task& task,
                    const rewards::RewardSet::Make& make_reward) {
  std::vector<std::unique_ptr<Hook>> hooks = configured_hooks(config.train);
  if (!config.train.eval_rewards.empty())
    hooks.push_back(
        std::make_unique<RewardEvaluation>(config, roles.policy, mesh, directory, make_reward));
  hooks.insert(hooks.begin(), opening(config, roles, mesh, task));
  // Before hooks that keep weights.
  if (mesh.world->size() > 1)
    hooks.insert(hooks.begin(), weights_check(config.mesh.check_weights_every, roles, mesh));
  TrainSection section = config.train;
  section.offload_dir = offload_directory(config);
  Trainer trainer(std::move(section), static_cast<uint64_t>(config.seed), roles, mesh, task,
                  std::move(hooks));
  return trainer.run(directory);
}

}  // namespace temper::train
