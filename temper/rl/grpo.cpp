#include "temper/rl/grpo.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "temper/base/error.h"
#include "temper/generate/mismatch.h"
#include "temper/rl/actor.h"
#include "temper/rl/observer.h"
#include "temper/rl/reference.h"
#include "temper/rl/replay.h"
#include "temper/rl/update.h"

namespace temper::rl {
namespace {

constexpr int kMostEmptyBatches = 10;

class GrpoRun {
 public:
  GrpoRun(const RunConfig& config, const train::RunHost& host)
      : algorithm_(find_algorithm(config)), run_(config, host), rl_(run_.config.rl) {
    if (rl_.beta > 0) reference_ = std::make_unique<Reference>(run_.policy, run_.config);
    if (rl_.replay)
      replay_ = std::make_unique<Replay>(run_.config, algorithm_, run_.policy.model->vocab_size);
    else
      actor_ = std::make_unique<Actor>(run_, algorithm_);
  }

  train::RunOutcome run();

 private:
  int64_t updates_per_batch() const { return rl_.minibatches * rl_.iterations; }
  int64_t planned_steps() const;
  Json state() const;
  void restore(const Json& state, const std::string& where);
  TrainingBatch prepare(RolloutBatch batch);
  void train_on(int64_t step, const TrainingBatch& batch, const RolloutStatistics& sampling);
  void update(int64_t step, const TrainingBatch& batch, const std::vector<size_t>& rows, bool first,
              const BatchStatistics& about, const RolloutStatistics& sampling);
  void stop_on_mismatch(int64_t step, const UpdateStatistics& s, const TrainingBatch& batch) const;
  void evaluate(int64_t step);
  RolloutBatch next_batch(int64_t step, RolloutStatistics& sampling);
  void point_out_rewards(int64_t step, const RolloutStatistics& sampling);

  const Algorithm& algorithm_;  // first: a name that is none is found before the model is read
  train::Run run_;
  const RlSection& rl_;
  std::unique_ptr<Reference> reference_;  // null where beta is 0
  std::unique_ptr<Actor> actor_;          // one of the two
  std::unique_ptr<Replay> replay_;
  Observer observer_{run_};
  rewards::FailureCounts failures_;  // of all ranks, since the run began
  double batch_started_ = 0;
};

int64_t GrpoRun::planned_steps() const {
  if (run_.config.train.max_steps) return *run_.config.train.max_steps;
  const double epochs = run_.config.train.epochs.value_or(1);
  if (replay_) return replay_->batches() * updates_per_batch();
  return actor_->loader().order().steps(epochs) * updates_per_batch();
}

Json GrpoRun::state() const {
  Json s = Json::object();
  if (actor_) {
    s["loader"] = actor_->loader().state().to_json();
    s["reward_failures"] = {failures_.timed_out, failures_.crashed, failures_.malformed};
  }
  if (replay_) s["replay_position"] = replay_->position();
  return s;
}

void GrpoRun::restore(const Json& state, const std::string& where) {
  if (actor_) {
    actor_->loader().restore(train::loader_state(state, where));
    const Json counts = state.value("reward_failures", Json{0, 0, 0});
    check<DataError>(counts.is_array() && counts.size() == 3 &&
                         std::all_of(counts.begin(), counts.end(),
                                     [](const Json& n) { return n.is_number_integer(); }),
                     where, ": `reward_failures` must be three whole numbers");
    failures_ = {counts[0], counts[1], counts[2]};
    return;
  }
  check<DataError>(
      state.contains("replay_position") && state["replay_position"].is_number_integer(), where,
      ": no `replay_position`");
  replay_->set_position(state["replay_position"].get<int64_t>());
}

TrainingBatch GrpoRun::prepare(RolloutBatch batch) {
  const RunConfig& config = run_.config;
  TrainingBatch out{std::move(batch), {}, {}, {}};
  const std::vector<Rollout>& rollouts = out.batch.rollouts;
  const bool recorded = std::all_of(rollouts.begin(), rollouts.end(),
                                    [](const Rollout& r) { return !r.logprobs.empty(); });
  if (recorded) {
    std::vector<float> flat;
    for (const Rollout& r : rollouts) flat.insert(flat.end(), r.logprobs.begin(), r.logprobs.end());
    out.sampler_logp = at::tensor(flat, at::kFloat);
  }
  const bool correct = rl_.on_mismatch == RlSection::OnMismatch::kCorrect;
  const auto score = [&](models::CausalLM& model, int adapter) {
    return score_rollouts(model, out.batch, config.train.micro_batch_tokens,
                          config.rollout.temperature, *run_.group, adapter);
  };
  if (actor_ && !correct)
    out.old_logp = out.sampler_logp;  // bit for bit what the first forward pass gives
  else if (updates_per_batch() > 1 || correct)
    out.old_logp = score(*run_.policy.model, 0);
  if (reference_)
    reference_->with(
        [&](models::CausalLM& model, int adapter) { out.ref_logp = score(model, adapter); });
  return out;
}

void GrpoRun::stop_on_mismatch(int64_t step, const UpdateStatistics& s,
                               const TrainingBatch& batch) const {
  if (s.sampler_trainer_max_abs_diff == 0 || rl_.on_mismatch != RlSection::OnMismatch::kStop)
    return;
  std::string place = "on another rank";
  if (s.differs_at >= 0) {
    const std::vector<int64_t> offsets = token_offsets(batch.batch);
    const auto rollout =
        std::upper_bound(offsets.begin(), offsets.end(), s.differs_at) - offsets.begin() - 1;
    const Rollout& r = batch.batch.rollouts[static_cast<size_t>(rollout)];
    place = temper::str(
        "at token ", s.differs_at - offsets[static_cast<size_t>(rollout)], " of group ", r.group,
        ", sample ", r.sample, "; ",
        generate::first_difference(*run_.policy.model, r.prompt_tokens, r.completion_tokens));
  }
  throw RunError(temper::str("step ", step,
                             ": the sampler's log-probabilities and the trainer's differ by up to ",
                             s.sampler_trainer_max_abs_diff, " ", place,
                             "; they should be equal to the bit (rl.on_mismatch: correct goes on "
                             "with truncated importance sampling)"));
}

void GrpoRun::update(int64_t step, const TrainingBatch& batch, const std::vector<size_t>& rows,
                     bool first, const BatchStatistics& about, const RolloutStatistics& sampling) {
  const double start = train::wall_seconds();
  const bool compare = first && actor_;
  UpdateStatistics s = forward_backward(run_, algorithm_, batch, rows, compare);
  if (compare) {
    s.sampler_trainer_max_abs_diff = run_.group->all_reduce_max(s.sampler_trainer_max_abs_diff);
    stop_on_mismatch(step, s, batch);
  }
  MetricsRow row = run_.update(step, s.totals);
  row.set("reward_mean", about.reward_mean);
  row.set("reward_std", about.reward_std);
  for (const auto& [name, mean] : about.reward_means) row.set("rewards/" + name, mean);
  if (reference_) row.set("kl", s.kl);
  row.set("entropy", s.entropy);
  row.set("clip_fraction", s.clip_fraction);
  row.set("completion_length_mean", about.length_mean);
  row.set("truncated_fraction", about.truncated);
  row.set("zero_std_groups", about.zero_std_groups);
  if (rl_.dynamic_sampling && actor_) {
    row.set("groups_sampled", sampling.groups_sampled);
    row.set("refills", sampling.refills);
  }
  if (actor_) {
    row.set("completions_dropped", sampling.dropped);
    row.set("reward_timeouts", failures_.timed_out);
    row.set("reward_crashes", failures_.crashed);
    row.set("reward_malformed", failures_.malformed);
  }
  row.set("rollout_seconds", first ? sampling.rollout_seconds : 0.0);
  row.set("reward_seconds", first ? sampling.reward_seconds : 0.0);
  row.set("train_seconds", train::wall_seconds() - start);
  if (compare) row.set("sampler_trainer_max_abs_diff", s.sampler_trainer_max_abs_diff);
  run_.log(std::move(row), s.totals, train::wall_seconds() - (first ? batch_started_ : start));
  if (first) observer_.point_out(about, s.kl);
}

// Iterations over the batch, each in minibatches of consecutive rows.
void GrpoRun::train_on(int64_t step, const TrainingBatch& batch,
                       const RolloutStatistics& sampling) {
  const BatchStatistics about = describe(batch.batch);
  const size_t rows = batch.batch.rollouts.size(), parts = static_cast<size_t>(rl_.minibatches);
  bool first = true;
  for (int64_t k = 0; k < updates_per_batch() && step <= run_.steps(); ++k) {
    const size_t part = static_cast<size_t>(k) % parts;
    std::vector<size_t> chosen((part + 1) * rows / parts - part * rows / parts);
    if (chosen.empty()) continue;
    std::iota(chosen.begin(), chosen.end(), part * rows / parts);
    update(step++, batch, chosen, std::exchange(first, false), about, sampling);
  }
}

void GrpoRun::evaluate(int64_t step) {
  if (!actor_ || run_.config.data.eval.empty() || run_.evaluated(step)) return;
  run_.set_evaluated(step);
  const RolloutBatch batch = actor_->evaluate();
  const BatchStatistics about = describe(batch);
  MetricsRow row(step);
  row.set("eval/reward_mean", about.reward_mean);
  for (const auto& [name, mean] : about.reward_means) row.set("eval/rewards/" + name, mean);
  row.set("eval/completion_length_mean", about.length_mean);
  row.set("eval/truncated_fraction", about.truncated);
  row.set("eval/rows", static_cast<int64_t>(batch.rollouts.size()));
  run_.log(row);
}

// The next rollout batch; empty at the end of the data. Where none can be made, the run so far is
// saved.
RolloutBatch GrpoRun::next_batch(int64_t step, RolloutStatistics& sampling) {
  const Json before = state();
  try {
    if (replay_) return replay_->next();
    RolloutBatch batch;
    int64_t dropped = 0;
    for (int tries = 0; batch.rollouts.empty(); ++tries) {
      sampling = {};
      batch = actor_->next(sampling);
      point_out_rewards(step, sampling);
      if (batch.rollouts.empty() && sampling.dropped == 0) break;
      check(tries < kMostEmptyBatches, "every completion of ", kMostEmptyBatches,
            " rollout batches was dropped because its reward failed (",
            actor_->rewards().first_failure(), "); see rewards.on_failure");
      dropped += sampling.dropped;
    }
    sampling.dropped = dropped;
    return batch;
  } catch (...) {
    if (step > run_.first_step()) run_.save(step - 1, before);
    throw;
  }
}

void GrpoRun::point_out_rewards(int64_t step, const RolloutStatistics& sampling) {
  const rewards::FailureCounts& now = sampling.failures;
  failures_.timed_out += now.timed_out;
  failures_.crashed += now.crashed;
  failures_.malformed += now.malformed;
  if (now.all() > 0)
    observer_.warn_once(
        "failures", temper::str("step ", step, ": rewards gave no verdict on ", now.all(),
                                " completions (the first: ", actor_->rewards().first_failure(),
                                "); rewards.on_failure says what they count, the metrics reward_* "
                                "how many there are"));
  const data::LoaderState& prompts = actor_->loader().state();
  const int64_t limit = run_.config.data.max_length;
  if (prompts.truncated > 0)
    observer_.warn_once("truncated prompts",
                        temper::str("prompts longer than data.max_length, ", limit,
                                    " tokens, are cut to their last ", limit));
  if (prompts.dropped > 0)
    observer_.warn_once("dropped prompts", temper::str("prompts longer than data.max_length, ",
                                                       limit, " tokens, are left out"));
}

train::RunOutcome GrpoRun::run() {
  const TrainSection& train = run_.config.train;
  const int64_t steps = planned_steps();
  if (!run_.begin(steps,
                  [this](const Json& state, const std::string& where) { restore(state, where); }))
    return {false, steps};
  if (run_.writer() && !replay_)
    forget_rollouts_after(run_.config.output_dir, run_.first_step() - 1);
  if (replay_ && !run_.config.data.eval.empty())
    run_.warn("data.eval is not used under rl.replay, which samples nothing");
  int64_t step = run_.first_step();
  bool stopped = false;
  while (step <= steps && !stopped) {
    batch_started_ = train::wall_seconds();
    RolloutStatistics sampling;
    RolloutBatch rollouts = next_batch(step, sampling);
    if (rollouts.rollouts.empty()) break;
    if (run_.writer() && !replay_) write_rollouts(run_.config.output_dir, step, rollouts);
    const int64_t parts =
        std::min<int64_t>(rl_.minibatches, static_cast<int64_t>(rollouts.rollouts.size()));
    const TrainingBatch batch = prepare(std::move(rollouts));
    train_on(step, batch, sampling);
    const int64_t before = step - 1;
    step += std::min(parts * rl_.iterations, steps - before);
    const int64_t last = step - 1;
    observer_.show(batch.batch.rollouts[0]);
    const auto passed = [&](int64_t every) { return every > 0 && last / every > before / every; };
    if (passed(train.eval_every)) evaluate(last);
    stopped = run_.should_stop() && step <= steps;
    if (stopped || passed(train.save_every)) run_.save(last, state());
  }
  const int64_t last = step - 1;
  if (!stopped) {
    evaluate(last);
    run_.finish(last, state());
  }
  std::vector<std::pair<std::string, std::string>> summary{{"steps", std::to_string(last)},
                                                           {"algorithm", rl_.algorithm}};
  if (actor_) {
    const data::LoaderState& prompts = actor_->loader().state();
    summary.emplace_back("prompts cut", std::to_string(prompts.truncated));
    summary.emplace_back("prompts left out", std::to_string(prompts.dropped));
    summary.emplace_back("completions without a verdict", std::to_string(failures_.all()));
  }
  run_.close(std::move(summary), observer_.samples());
  return {stopped, last};
}

}  // namespace

train::RunOutcome run_grpo(const RunConfig& config, const train::RunHost& host) {
  return GrpoRun(config, host).run();
}

}  // namespace temper::rl
