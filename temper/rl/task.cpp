#include "temper/rl/task.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/metrics/trace.h"
#include "temper/ops/backend.h"
#include "temper/rl/quantile.h"
#include "temper/rl/rollout/prompts.h"
#include "temper/train/run/agreed_error.h"

namespace temper::rl {

// Name of the uint8 tensor with the lines of an unfinished batch in a checkpoint.
static constexpr const char* kBatchTensor = "rollout_batch.jsonl";

// Nats per token. Other meshes and machines round differently, which is not worth a warning.
static constexpr double kMeshRounding = 1e-4;

// Nats per token: a policy that learns is not so far from what it was some updates before.
static constexpr double kImpossibleKl = 1;
static constexpr int64_t kMostWrongBatches = 3;

RlTask::RlTask(const RlConfig& config, train::Roles& roles, dist::Group& group,
               RolloutSource& source, train::Messages& messages, const std::string& output_dir)
    : config_(config),
      rl_(config.rl),
      algorithm_(*config.rl.algorithm),
      roles_(roles),
      group_(group),
      source_(source),
      messages_(messages),
      observer_(messages, roles.policy.tokenizer, config.rollout.max_new_tokens),
      correction_(rl_.correction()),
      done_({{"source", source.state()}, {"update", 0}, {"algorithm", algorithm_.state()}}) {
  // Before anything resumes: the policy is still what the config names.
  if (algorithm_.needs().reference && !roles.reference)
    roles.reference = reference_source(config, roles.policy).load(roles.policy);
  moving_reference_.emplace(config, roles.policy, roles.reference.get());
  check(!algorithm_.needs().critic || roles.critic,
        "this algorithm needs a critic (Roles::critic)");
  if (!output_dir.empty() && source.samples() && group.is_writer())
    files_.emplace(output_dir, *RolloutRetention::parse(rl_.save_rollouts), rl_.compress_rollouts);
}

void RlTask::begin(int64_t steps_made) {
  if (files_) files_->remove_after(steps_made);
  const std::string other = rl_.overridden_defaults(config_.rollout_limits());
  if (!other.empty())
    messages_.note(str("rl.algorithm: ", rl_.algorithm_name(),
                       "; the config overrides its paper's defaults: ", other));
}

int64_t RlTask::planned_steps() const {
  return source_.planned_batches() * rl_.updates_per_batch();
}

std::string RlTask::work() const {
  if (rl_.replay) return "rollouts are read from " + *rl_.replay;
  const int64_t steps = rl_.updates_per_batch();
  return str("a rollout of ", rl_.prompts_per_rollout, " prompts x ", rl_.group_size,
             " completions (at most ", config_.rollout.max_new_tokens, " tokens) ",
             steps == 1 ? std::string("each") : str("for every ", steps, " steps"));
}

// The updates of the batch: fewer than the config says where it has fewer episodes than
// minibatches.
int64_t RlTask::updates_of_batch() const {
  return std::min<int64_t>(rl_.minibatches, static_cast<int64_t>(batch_.num_episodes())) *
         rl_.iterations;
}

// Each iteration goes through the batch in minibatches of consecutive episodes.
std::pair<size_t, size_t> RlTask::episodes_of_update() const {
  const size_t parts = static_cast<size_t>(updates_of_batch() / rl_.iterations);
  const size_t part = static_cast<size_t>(update_) % parts, episodes = batch_.num_episodes();
  return {part * episodes / parts, (part + 1) * episodes / parts};
}

std::vector<size_t> RlTask::trained_episodes() const {
  const auto [begin, end] = episodes_of_update();
  return batch_.episodes(begin, end, rl_.mask_truncated);
}

bool RlTask::next_batch(int64_t step) {
  RolloutBatch rollouts = source_.next(step - 1);
  if (rollouts.groups.empty()) return false;
  rollout_seconds_ = rollouts.rollout_seconds;
  reward_seconds_ = rollouts.reward_seconds;
  before_batch_ = algorithm_.state();
  algorithm_.prepare_batch(rollouts.groups);
  batch_ = TrainingBatch(std::move(rollouts.groups));
  update_ = 0;
  note_staleness(step - 1);
  check_fresh(step);
  source_.look_ahead(step - 1, updates_of_batch());
  score_batch();
  algorithm_.assign_batch(batch_.groups());
  if (files_)
    rollout_file_ = files_->write((step - 1) / rl_.updates_per_batch() + 1, step, batch_.groups());
  about_ = describe(batch_.groups(), algorithm_);
  return true;
}

// The policy that sampled a file is not known.
void RlTask::note_staleness(int64_t policy_version) {
  staleness_ = 0;
  oldest_ = 0;
  fresh_ = source_.samples();
  double completions = 0;
  for (size_t i = 0; i < batch_.num_episodes(); ++i) {
    double lag = 0, tokens = 0;
    for (const int32_t s : batch_.episode(i).path) {
      const Segment& segment = batch_.group(i).segments[static_cast<size_t>(s)];
      if (!segment.sampled) continue;
      const double count = static_cast<double>(segment.tokens.size());
      lag += count * static_cast<double>(policy_version - segment.policy_version);
      tokens += count;
      oldest_ = std::max(oldest_, policy_version - segment.policy_version);
    }
    fresh_ = fresh_ && lag == 0;
    staleness_ += lag / tokens;
    ++completions;
  }
  if (completions > 0) staleness_ /= completions;
}

// Throws where an older policy sampled the batch: rl.on_mismatch: stop compares with the current
// one.
void RlTask::check_fresh(int64_t step) const {
  if (!source_.samples() || fresh_ || rl_.on_mismatch == RlSection::OnMismatch::kCorrect) return;
  throw train::AgreedError(
      str("step ", step, ": an older policy sampled the completions, ", staleness_,
          " updates behind on average (rollout.server.sync), and rl.on_mismatch: stop expects the "
          "current one; rl.on_mismatch: correct trains on them with importance weights"));
}

// Log-probabilities and values that stay the same over the batch's updates.
void RlTask::score_batch() {
  const trace::Span span("log-probabilities of the batch");
  const Needs needs = algorithm_.needs();
  const int64_t max_tokens = config_.train.micro_batch_tokens;
  const double temperature = config_.rollout.sampling.temperature;
  const bool correct = rl_.on_mismatch == RlSection::OnMismatch::kCorrect;
  if (source_.exact() && !correct) {
    // Bit for bit what the first forward pass gives.
    for (EpisodeGroup& group : batch_.groups())
      for (Segment& segment : group.segments) segment.old_logp = segment.logprobs;
  } else if (rl_.updates_per_batch() > 1 || needs.old_logp) {
    // The only update of a batch needs none: its passes give the same log-probabilities.
    const at::NoGradGuard no_grad;
    batch_.score(&Segment::old_logp, max_tokens, group_, [&](const train::ForwardPass& pass) {
      return train::token_logp(*roles_.policy.model, pass, {.temperature = temperature}).logp;
    });
  }
  if (needs.critic)
    batch_.score(&Segment::value, max_tokens, group_, [&](const train::ForwardPass& pass) {
      const at::NoGradGuard no_grad;
      const nn::TransientPanels packs_once;
      return roles_.critic->values(pass, {});
    });
  // Other ranks may have been asked for it while the batch was sampled.
  if (needs.reference && !batch_.has(&Segment::ref_logp))
    batch_.score(&Segment::ref_logp, max_tokens, group_, [&](const train::ForwardPass& pass) {
      return roles_.reference->token_logp(pass, temperature);
    });
}

// The policy losses of an update depend on the entropies of all its tokens: a pass before its own.
void RlTask::find_least_entropy(std::span<const size_t> trained) {
  const trace::Span span("entropies of the update");
  const at::NoGradGuard no_grad;
  const train::PassOptions options{.temperature = config_.rollout.sampling.temperature,
                                   .entropy = true};
  batch_.score(&Segment::entropy, trained, config_.train.micro_batch_tokens, group_,
               [&](const train::ForwardPass& pass) {
                 return train::token_logp(*roles_.policy.model, pass, options).entropy;
               });
  std::vector<float> all;
  for (const Segment* segment : batch_.sampled_segments(trained))
    all.insert(all.end(), segment->entropy.begin(), segment->entropy.end());
  if (!all.empty())
    least_entropy_ = interpolated_quantile(std::move(all), 1 - rl_.top_entropy_fraction);
}

std::optional<train::StepPlan> RlTask::next(int64_t step) {
  rollout_seconds_ = reward_seconds_ = 0;
  if (batch_.empty() || ++update_ >= updates_of_batch())
    if (!next_batch(step)) return {};
  source_.look_ahead(step - 1, updates_of_batch() - update_);
  train_started_ = steady_seconds();
  sampler_check_ = {};
  const auto [begin, end] = episodes_of_update();
  const std::vector<size_t> trained = trained_episodes();
  const std::vector<int64_t> length_C = batch_.sampled_lengths(trained);
  const std::vector<double> weight_C = algorithm_.token_weights(length_C);
  weight_.assign(batch_.num_episodes(), 0);
  for (size_t c = 0; c < trained.size(); ++c) weight_[trained[c]] = weight_C[c];
  train::StepPlan plan;
  plan.tokens = static_cast<double>(batch_.num_tokens(begin, end));
  for (const int64_t length : length_C) plan.supervised_tokens += static_cast<double>(length);
  update_tokens_ = plan.supervised_tokens;
  if (rl_.top_entropy_fraction < 1) find_least_entropy(trained);
  const int64_t max_tokens = train::pass_tokens(config_);
  plan.passes = train::plan_passes(batch_.units(trained, max_tokens), max_tokens, group_);
  // Of whole groups, so that it does not depend on how they are packed.
  plan.count_images(batch_.units(trained, std::numeric_limits<int64_t>::max()));
  for (train::ForwardPass& pass : plan.passes) batch_.set_kept(pass);
  return plan;
}

train::Loss RlTask::loss(const train::ForwardPass& pass) {
  using Recompute = train::TrainSection::Recompute;
  const train::PassOptions options{.temperature = config_.rollout.sampling.temperature,
                                   .entropy = true,
                                   .recompute = config_.train.recompute == Recompute::kBlocks,
                                   .watched = true};
  const ops::TokenLogp now = train::token_logp(*roles_.policy.model, pass, options);
  if (compares() || compares_file() || compares_servers())
    sampler_check_.add(batch_, pass, now.logp);
  TokenBatch b = batch_.token_batch(pass, now, weight_);
  b.update_tokens = update_tokens_;
  if (algorithm_.needs().critic) b.value_M = roles_.critic->values(pass, options);
  const bool corrects = rl_.on_mismatch == RlSection::OnMismatch::kCorrect;
  const at::Tensor sampler_logp_M =
      corrects ? batch_.gather(pass, &Segment::logprobs) : at::Tensor();
  if (corrects) b.correction_M = correction_.weight(b.old_logp_M, sampler_logp_M, b.cu_length_C1);
  if (rl_.top_entropy_fraction < 1) {
    const at::Tensor top_M =
        (batch_.gather(pass, &Segment::entropy) >= least_entropy_).to(at::kFloat);
    b.correction_M = b.correction_M.defined() ? b.correction_M * top_M : top_M;
  }
  train::Loss loss = algorithm_.loss(b);
  if (corrects) add_mismatch(loss, correction_, b.old_logp_M, sampler_logp_M, b.cu_length_C1);
  loss.means.push_back(
      {"entropy", train::ordered_sum(b.entropy_M), static_cast<double>(b.entropy_M.numel())});
  return loss;
}

void RlTask::before_update(int64_t step) {
  if (!compares() && !compares_file() && !compares_servers()) return;
  sampler_check_.reduce(group_);
  if (compares_servers()) check_servers(step);
  if (compares_file())
    check_file(step);
  else if (rl_.on_mismatch == RlSection::OnMismatch::kStop)
    sampler_check_.stop_on_difference(step, batch_, *roles_.policy.model);
}

// Ends a run whose servers' log-probabilities cannot be those of any of its policies: importance
// weights of them are noise, which clips to a gradient that looks like one. Servers that keep their
// own weights (sync: none) may be as far away as they like.
void RlTask::check_servers(int64_t step) {
  const double kl = sampler_check_.kl();
  const bool synced = config_.rollout.server.sync == generate::ServerSection::Sync::kDisk;
  const bool sure = sampler_check_.sure_of_all();
  wrong_batches_ = sure || (synced && kl > kImpossibleKl) ? wrong_batches_ + 1 : 0;
  if (std::isfinite(kl) && wrong_batches_ < kMostWrongBatches) return;
  throw train::AgreedError(
      str("step ", step, ": rollout.server: the log-probabilities of the servers are not those of ",
          "the policy: ",
          sure ? str("all are 0 in ", wrong_batches_, " consecutive batches")
               : str("mismatch_kl is ", kl, " nats per token",
                     std::isfinite(kl) ? str(", above ", kImpossibleKl, " in ", wrong_batches_,
                                             " consecutive batches")
                                       : std::string()),
          ", which no staleness explains; expected those of the sampled tokens under the weights "
          "that the run gave the server. Look at what changes token ids or log-probabilities on "
          "the way (a proxy, another vocabulary, another rollout.server.kind); temper check asks "
          "the servers"));
}

// The contract of rl.replay is that a file's log-probabilities are not used unless on_mismatch is
// correct: where nobody wrote that key, the user is told what that means for this file.
void RlTask::check_file(int64_t step) const {
  const bool stops = config_.was_set("rl.on_mismatch");
  const double mean = sampler_check_.mean();
  // The same weights' log-probabilities differ by rounding where the backend's sums depend on the
  // batch.
  const bool exactly = stops && ops::backend_of(roles_.policy.model->device()).batch_invariant();
  if (exactly ? sampler_check_.largest() == 0 : mean <= kMeshRounding) return;
  const std::string found =
      str(rl_.replay.value_or("the rollouts"), ": another policy sampled its completions: at step ",
          step, " the file's `logprobs` and the policy's log-probabilities differ by ", mean,
          " on average, at most by ", sampler_check_.largest());
  if (stops)
    throw train::AgreedError(str(
        found, "; ", config_.where("rl.on_mismatch"),
        ": stop asks for equal ones. rl.on_mismatch: correct trains on the file with importance "
        "weights, truncated or masked as rl.importance_correction says"));
  messages_.warn_once("replay",
                      str(found,
                          "; it is trained on as if the policy had sampled it. "
                          "rl.on_mismatch: correct corrects with importance weights, stop "
                          "ends such a run"));
}

void RlTask::describe_step(MetricsRow& row) {
  const bool compares_groups = algorithm_.needs().min_group_size > 1;
  about_.add_to(row, compares_groups);
  if (update_ == 0) {
    row.set_histogram("reward", about_.rewards);
    row.set_histogram("completion_length", about_.lengths);
  }
  source_.describe(row);
  const std::vector<const Segment*> trained = batch_.sampled_segments(trained_episodes());
  if (!trained.empty()) algorithm_.describe(trained, row);
  row.set("rollout_seconds", rollout_seconds_);
  row.set("reward_seconds", reward_seconds_);
  row.set("train_seconds", steady_seconds() - train_started_);
  if (compares()) row.set("sampler_trainer_max_abs_diff", sampler_check_.largest());
  if (source_.samples()) {
    row.set("staleness_mean", staleness_);
    row.set("staleness_max", oldest_);
  }
  if (update_ == 0) {
    observer_.warn_of(about_, row.number("kl").value_or(0), row.number("mismatch_kl").value_or(0),
                      compares_groups);
    observer_.log_sample(batch_.group(0), batch_.episode(0));
  }
  const bool more = update_ + 1 < updates_of_batch();
  // Within a batch, the algorithm's state before it: restore() gives its credit again.
  done_ = {{"source", source_.state()},
           {"update", more ? update_ + 1 : 0},
           {"staleness", staleness_},
           {"oldest", oldest_},
           {"algorithm", more ? before_batch_ : algorithm_.state()}};
  in_flight_ = source_.in_flight();
  // The batch has the log-probabilities of the reference that it began with.
  moving_reference_->after_update(row.step());
}

std::vector<MetricInfo> RlTask::metrics() const {
  std::vector<MetricInfo> infos = rl_metrics();
  for (MetricInfo& info : algorithm_.metrics()) infos.push_back(std::move(info));
  return infos;
}

bool RlTask::evaluate(MetricsRow& row, const std::function<bool()>& stop) {
  if (!config_.train.eval_rewards.empty()) return false;  // train/run/reward_evaluation.h
  train::EvaluationSums sums(train::set_names(
      data::evaluation_sources(config_.data, static_cast<uint64_t>(config_.seed))));
  const bool any = source_.evaluate(sums, stop);
  if (!any || !sums.reduce(group_, stop())) return false;
  sums.write(row);
  return true;
}

// Between updates of a batch the batch itself is part of the state, with the log-probabilities of
// the weights that it began with.
train::TaskState RlTask::state() const {
  train::TaskState state{done_, {}};
  if (in_flight_) in_flight_(state);
  moving_reference_->add_to(state.tensors);
  if (done_["update"] == 0) return state;
  state.tensors[kBatchTensor] = bytes_view(batch_.lines());
  return state;
}

void RlTask::restore(const train::TaskState& state, const std::string& where) {
  const Json& values = state.values;
  check<DataError>(values.contains("source") && values.contains("update") &&
                       values["update"].is_number_integer() && values["update"] >= 0,
                   where, ": no state of a rollout source");
  source_.restore(values["source"], where);
  source_.restore_in_flight(state, where);
  in_flight_ = source_.in_flight();
  const Json of_algorithm = values.value("algorithm", Json());
  algorithm_.restore(of_algorithm, where);
  moving_reference_->restore(state.tensors, where);
  done_ = {{"source", values["source"]},
           {"update", values["update"]},
           {"staleness", values.value("staleness", Json(0.0))},
           {"oldest", values.value("oldest", Json(0))},
           {"algorithm", of_algorithm}};
  if (values["update"] == 0) return;
  const auto found = state.tensors.find(kBatchTensor);
  check<DataError>(found != state.tensors.end() && found->second.dtype == DType::kUInt8, where,
                   ": no tensor ", kBatchTensor,
                   " with the rollout batch that the run was training on");
  batch_ = TrainingBatch::from_lines(bytes_of(found->second), line_format(config_, roles_.policy),
                                     where);
  check<DataError>(!batch_.empty(), where,
                   ": the rollout batch that the run was training on is empty");
  before_batch_ = of_algorithm;
  update_ = values["update"].get<int64_t>() - 1;
  staleness_ = values.value("staleness", 0.0);
  oldest_ = values.value("oldest", int64_t{0});
  algorithm_.assign_batch(batch_.groups());
  about_ = describe(batch_.groups(), algorithm_);
}

}  // namespace temper::rl
