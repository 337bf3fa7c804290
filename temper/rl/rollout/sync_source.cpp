#include "temper/rl/rollout/sync_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/metrics/trace.h"
#include "temper/rl/episodes/live_episode.h"
#include "temper/rl/quantile.h"
#include "temper/rl/rollout/rollout_lines.h"
#include "temper/train/group_means.h"
#include "temper/train/run/agreed_error.h"

namespace temper::rl {
namespace {

constexpr int kMostEmptyBatches = 10;

std::vector<int32_t> end_tokens(const RlConfig& config, const train::Policy& policy) {
  std::vector<int32_t> ends = config.rollout.options(config.seed).stop_token_ids;
  const std::vector<int32_t>& own = policy.model->eos_token_ids;
  if (!config.rollout.ignore_eos) ends.insert(ends.end(), own.begin(), own.end());
  return ends;
}

}  // namespace

SyncSource::SyncSource(const RlConfig& config, train::Policy& policy, dist::Group& group,
                       train::Messages& messages, std::unique_ptr<BehaviorPolicy> behavior,
                       std::unique_ptr<ReferenceWorker> reference_worker,
                       const rewards::RewardSet::Make& make_reward)
    : config_(config),
      policy_(policy),
      group_(group),
      messages_(messages),
      rewards_(config.rewards, policy.tokenizer != nullptr, make_reward),
      closings_(config.rewards, policy.tokenizer.get(), end_tokens(config, policy)),
      prompts_(config, policy, rewards_),
      line_format_(line_format(config, policy)),
      driver_(config, policy, group, std::move(behavior), [this](PartialGroup& g) { sampled(g); }),
      reference_worker_(std::move(reference_worker)),
      reward_worker_(rewards_, static_cast<size_t>(
                                   config.train.max_inflight.value_or(RewardWorker::kMostWaiting))),
      failures_(rewards_, driver_.episodes()),
      state_after_(prompts_.state()) {
  check_reward_models(config.rewards, policy.tokenizer.get(), policy.model->vocab_size);
  rewards_.check_answers();
  rewards_.tell_failures([this](const std::string& failure) {
    const std::lock_guard lock(failed_mutex_);
    failed_.push_back(failure);
  });
  driver_.look_with([this] { warn_of_failures(); });
}

void SyncSource::warn_of_failures() {
  std::vector<std::string> failed;
  {
    const std::lock_guard lock(failed_mutex_);
    failed.swap(failed_);
  }
  for (const std::string& failure : failed)
    messages_.warn_once("failure of " + failure,
                        str("the reward ", failure,
                            " (further failures are counted and reported after the rollout)"));
}

PartialBatch SyncSource::draw(int64_t prompts) {
  PartialBatch batch;
  batch.state_before = prompts_.state();
  batch.prompts = prompts_.next(prompts, batch.counts.passed_over);
  batch.state_after = prompts_.state();
  warn_beyond_positions(batch.prompts, policy_.model->config().max_position_embeddings,
                        config_.rollout.max_new_tokens, messages_);
  return batch;
}

// Gives the batch this rank's share of its prompts, with nothing sampled yet.
void SyncSource::deal(PartialBatch& batch, int64_t samples) const {
  for (size_t i = static_cast<size_t>(group_.rank()); i < batch.prompts.size();
       i += static_cast<size_t>(group_.size())) {
    PartialGroup& group = batch.mine[batch.prompts[i].key];
    group.prompt = &batch.prompts[i];
    group.unfinished = samples;
    group.completions.resize(driver_.episodes() ? 0 : static_cast<size_t>(samples));
    group.episodes.id = group.prompt->key;
  }
}

std::unique_ptr<PartialBatch> SyncSource::begin() {
  auto batch = std::make_unique<PartialBatch>(draw(config_.rl.prompts_per_rollout));
  if (batch->prompts.empty()) return nullptr;
  // Not before the run has begun: until then nobody hears a warning.
  if (driver_.episodes() && !driver_.episodes()->shows_tools())
    messages_.warn_once("tools", kHiddenTools);
  batch->counts.groups_sampled = static_cast<int64_t>(batch->prompts.size());
  deal(*batch, config_.rl.group_size);
  return batch;
}

// The template that wrote the row's prompt; null: none.
const ChatTemplate* SyncSource::template_of(const data::PromptRow& row) const {
  if (!driver_.episodes()) return row.chat.get();
  if (!config_.environment.openai.command.empty())
    return prompt_format(config_, policy_).chat.get();
  return episode_template(prompt_format(config_, policy_), row);
}

// Sets the closing tokens of completions that ended by themselves.
void SyncSource::close(PartialGroup& partial) {
  const ChatTemplate* const chat = template_of(partial.prompt->row);
  EpisodeGroup& group = partial.episodes;
  for (Episode& episode : group.episodes)
    if (episode.stopped) episode.closing_tokens = closings_.after(group.completion(episode), chat);
}

void SyncSource::judge(const PartialGroup& partial) {
  const Prompt& prompt = *partial.prompt;
  const EpisodeGroup& group = partial.episodes;
  std::vector<rewards::Sample> samples;
  for (const Episode& episode : group.episodes) {
    rewards::Sample s;
    s.row = prompt.row.fields;
    s.where = prompt.row.where;
    s.prompt_tokens = group.prompt(episode);
    s.completion_tokens = group.completion(episode);
    s.images = group.images(episode);
    if (policy_.tokenizer) s.prompt = policy_.tokenizer->decode(s.prompt_tokens, true);
    s.completion = episode.text;
    s.has_text = policy_.tokenizer != nullptr;
    s.truncated = !episode.stopped;
    s.max_new_tokens = config_.rollout.max_new_tokens;
    s.closing_tokens = episode.closing_tokens;
    samples.push_back(std::move(s));
  }
  reward_worker_.submit(group.id, std::move(samples), check_running_);
}

// Tensor-parallel ranks sample the same group: one of them submits it for all.
void SyncSource::sampled(PartialGroup& group) {
  if (!group_.leads()) return;
  close(group);
  judge(group);
  if (reference_worker_ && driver_.uses_behavior_policy())
    reference_worker_->submit(group.episodes, check_running_);
}

// Waits for the rewards of the batch. Leaves out groups that were stopped, and dropped episodes.
std::vector<EpisodeGroup> SyncSource::judged_groups(PartialBatch& batch) {
  std::optional<trace::Span> span(std::in_place, "waiting for rewards");
  verdicts_.merge(reward_worker_.collect(check_running_));
  warn_of_failures();
  if (reference_worker_) scored_.merge(reference_worker_->collect(check_running_));
  span.reset();
  batch.reward_seconds += reward_worker_.seconds_since_last_call();
  std::vector<EpisodeGroup> mine;
  for (auto& [key, partial] : batch.mine) {
    if (partial.unfinished > 0 || !group_.leads()) continue;  // stopped
    EpisodeGroup& group = partial.episodes;
    if (partial.prompt) group.rows = partial.prompt->row.group;
    if (auto scored = scored_.extract(key))
      for (size_t i = 0; i < group.segments.size(); ++i)
        group.segments[i].ref_logp = std::move(scored.mapped().segments[i].ref_logp);
    const std::vector<rewards::RewardResult> judged = std::move(verdicts_[key]);
    verdicts_.erase(key);
    std::vector<Episode> kept;
    batch.judged += rewards_.names().empty() ? 0 : std::ssize(group.episodes);
    for (size_t i = 0; i < group.episodes.size(); ++i) {
      const rewards::RewardResult& verdict = judged.at(i);
      batch.unrewarded += verdict.failed;
      batch.counts.dropped += verdict.dropped;
      for (size_t r = 0; r < verdict.unanswered.size(); ++r) {
        if (verdict.unanswered[r].empty()) continue;
        Unanswered& of_reward = batch.unanswered[r];
        if (of_reward.completions++ == 0) of_reward.why = verdict.unanswered[r];
      }
      if (verdict.dropped) continue;
      Episode& episode = group.episodes[i];
      episode.reward += verdict.reward;
      for (size_t n = 0; n < rewards_.names().size(); ++n)
        episode.rewards.emplace_back(rewards_.names()[n], verdict.each[n]);
      kept.push_back(std::move(episode));
    }
    group.episodes = std::move(kept);
    if (!group.episodes.empty()) mine.push_back(std::move(group));
  }
  return group_.has_twins()
             ? from_lines({group_.agreed(to_lines(mine, reference_worker_ != nullptr))})
             : mine;
}

// The groups of all ranks, by id: ranks exchange them as lines of a rollouts file.
std::vector<EpisodeGroup> SyncSource::gather(std::vector<EpisodeGroup> mine) const {
  if (group_.size() == 1) return mine;
  return from_lines(group_.all_gather(to_lines(mine, reference_worker_ != nullptr)));
}

std::vector<EpisodeGroup> SyncSource::from_lines(const std::vector<std::string>& texts) const {
  std::vector<EpisodeGroup> all;
  for (const std::string& text : texts) add_lines(all, text, line_format_, "another rank");
  std::stable_sort(all.begin(), all.end(),
                   [](const EpisodeGroup& a, const EpisodeGroup& b) { return a.id < b.id; });
  return all;
}

// Tells the curriculum how well the policy did; the groups are those of all ranks.
void SyncSource::learn(const PartialBatch& batch, const EpisodeGroup& group) {
  if (!prompts_.difficulty().any() || group.episodes.empty()) return;
  const auto prompt =
      std::find_if(batch.prompts.begin(), batch.prompts.end(),
                   [&](const Prompt& candidate) { return candidate.key == group.id; });
  double sum = 0;
  for (const Episode& episode : group.episodes) sum += episode.reward;
  if (prompt != batch.prompts.end())
    prompts_.learn(*prompt, sum / static_cast<double>(group.episodes.size()));
}

// The batch's groups; with dynamic sampling, those that the algorithm does not keep are replaced
// while max_refills allows. Where refilling ends early they fill the batch after all: its size
// stays what the config says. An empty batch is drawn anew.
std::vector<EpisodeGroup> SyncSource::fill(PartialBatch& batch, int64_t policy_version) {
  const Algorithm& algorithm = *config_.rl.algorithm;
  std::vector<EpisodeGroup> kept, set_aside;
  const int64_t wanted = config_.rl.prompts_per_rollout, most = config_.rollout.max_new_tokens;
  while (true) {
    for (EpisodeGroup& g : gather(judged_groups(batch))) {
      learn(batch, g);
      const bool learns = algorithm.max_refills() == 0 || algorithm.keep(g);
      (learns ? kept : set_aside).push_back(std::move(g));
    }
    if (std::ssize(kept) >= wanted || batch.counts.refills == algorithm.max_refills()) break;
    ++batch.counts.refills;
    PartialBatch more = draw(wanted - std::ssize(kept));
    batch.state_after = more.state_after;
    batch.counts.passed_over += more.counts.passed_over;
    if (more.prompts.empty()) break;
    batch.counts.groups_sampled += std::ssize(more.prompts);
    batch.prompts = std::move(more.prompts);
    batch.mine.clear();
    deal(batch, config_.rl.group_size);
    driver_.sample({{&batch, most}}, policy_version);
  }
  for (EpisodeGroup& g : set_aside)
    if (std::ssize(kept) < wanted) kept.push_back(std::move(g));
  return kept;
}

RolloutBatch SyncSource::finish(PartialBatch& batch, int64_t policy_version) {
  RolloutBatch rollouts;
  rollouts.groups = fill(batch, policy_version);
  failures_.count(batch, group_);
  for (int tries = 1; rollouts.groups.empty(); ++tries) {
    check<train::AgreedError>(
        tries < kMostEmptyBatches, "every completion of ", kMostEmptyBatches,
        " rollout batches was dropped (the first failure: ", failures_.first(),
        "); see rewards.on_failure, environment.on_failure and data.overlong, which are drop");
    std::unique_ptr<PartialBatch> next = begin();
    if (!next) break;  // the data has ended
    driver_.sample({{next.get(), config_.rollout.max_new_tokens}}, policy_version);
    next->counts.groups_sampled += batch.counts.groups_sampled;
    next->counts.refills = batch.counts.refills;
    next->counts.speculation = next->counts.speculation + batch.counts.speculation;
    next->rollout_seconds += batch.rollout_seconds;
    next->reward_seconds += batch.reward_seconds;
    const int64_t dropped = batch.counts.dropped;  // dropped completions of all ranks
    batch = std::move(*next);
    rollouts.groups = fill(batch, policy_version);
    failures_.count(batch, group_);
    batch.counts.dropped += dropped;
  }
  last_ = batch.counts;
  std::vector<double> drafted{static_cast<double>(last_.speculation.drafted_tokens),
                              static_cast<double>(last_.speculation.accepted_tokens)};
  group_.all_reduce_sum(drafted);
  last_.speculation = {static_cast<int64_t>(drafted[0]), static_cast<int64_t>(drafted[1])};
  state_after_ = batch.state_after;
  last_.coverage = prompts_.coverage(state_after_);
  std::vector<float> latencies;
  for (const std::string& of_rank : group_.all_gather(group_.agreed(Json(batch.latencies).dump())))
    for (const Json& seconds : parse_json(of_rank, "another rank"))
      latencies.push_back(seconds.get<float>());
  if (!latencies.empty()) {
    last_.latency_p50 = interpolated_quantile(latencies, 0.5);
    last_.latency_p95 = interpolated_quantile(std::move(latencies), 0.95);
  }
  rollouts.rollout_seconds = group_.all_reduce_max(batch.rollout_seconds);
  rollouts.reward_seconds = group_.all_reduce_max(batch.reward_seconds);
  failures_.warn(messages_);
  prompts_.warn(messages_);
  return rollouts;
}

RolloutBatch SyncSource::next(int64_t policy_version) {
  const std::unique_ptr<PartialBatch> batch = begin();
  if (!batch) return {};
  driver_.sample({{batch.get(), config_.rollout.max_new_tokens}}, policy_version);
  return finish(*batch, policy_version);
}

std::string SyncSource::lines(const PartialBatch& batch) const {
  std::string all;
  for (const std::string& text : group_.all_gather(batch.lines())) all += text;
  return all;
}

std::unique_ptr<PartialBatch> SyncSource::resume(const std::string& lines, int64_t max_tokens,
                                                 const std::string& where) {
  std::unique_ptr<PartialBatch> batch = begin();
  check<DataError>(batch != nullptr, where, ": a rollout batch goes on behind the end of the data");
  batch->fill(lines, policy_.model->vocab_size, config_.rollout.max_new_tokens, where);
  for (auto& [key, group] : batch->mine) {
    for (const PartialCompletion& c : group.completions)
      check<DataError>(c.stopped || c.length() == max_tokens, where,
                       ": a completion of a rollout batch that was begun is missing");
    if (group.unfinished == 0) sampled(group);
  }
  return batch;
}

void SyncSource::describe(MetricsRow& row) const {
  if (config_.rl.algorithm->max_refills() > 0) {
    row.set("groups_sampled", last_.groups_sampled);
    row.set("refills", last_.refills);
  }
  // In an environment the share would depend on when it answered.
  if (const auto [drafted, accepted] = last_.speculation; drafted > 0 && !driver_.episodes())
    row.set("speculative_accepted", static_cast<double>(accepted) / static_cast<double>(drafted));
  row.set("completions_dropped", last_.dropped);
  row.set("prompt_coverage", last_.coverage);
  row.set("rollout_latency_p50", last_.latency_p50);
  row.set("rollout_latency_p95", last_.latency_p95);
  if (prompts_.difficulty().any()) row.set("prompts_passed_over", last_.passed_over);
  failures_.describe(row);
}

bool SyncSource::evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) {
  if (prompts_.evaluation().empty()) return false;
  for (size_t set = 0; set < prompts_.evaluation().size() && !stop(); ++set) {
    PartialBatch batch;
    batch.prompts = prompts_.evaluation()[set];
    deal(batch, 1);
    driver_.sample_with_policy({&batch, config_.rollout.max_new_tokens}, stop);
    for (const EpisodeGroup& g : judged_groups(batch)) {
      // Several are the branches of an agent's episode, which counts as one.
      const double share = 1 / static_cast<double>(g.episodes.size());
      const auto add = [&](const std::string& metric, double value) {
        sums.add_mean(set, metric, share * value, share);
      };
      for (const Episode& e : g.episodes) {
        add("reward_mean", e.reward);
        if (!g.rows.empty()) add(train::group_metric("reward", g.rows), e.reward);
        for (const auto& [name, value] : e.rewards) add("rewards/" + name, value);
        add("completion_length_mean", static_cast<double>(g.sampled_tokens(e)));
        add("truncated_fraction", e.stopped ? 0 : 1);
        if (e.turns > 0) add("turns_mean", static_cast<double>(e.turns));
      }
      sums.add_total(set, "rows", 1);
    }
  }
  failures_.pass_over();
  return true;
}

Json SyncSource::state() const {
  Json state = failures_.state();
  state["loader"] = state_after_.to_json();
  state["batch"] = {last_.groups_sampled, last_.refills, last_.dropped};
  state["drafts"] = {last_.speculation.drafted_tokens, last_.speculation.accepted_tokens};
  if (prompts_.difficulty().any())
    state["difficulty"] = {{"success", prompts_.difficulty().to_json()},
                           {"passed_over", last_.passed_over}};
  return state;
}

void SyncSource::restore(const Json& state, const std::string& where) {
  check<DataError>(!state.is_object() || !state.contains("inner"), where,
                   ": the run was begun with rl.max_staleness, and does not go on without it; "
                   "choose another output_dir, or resume=never");
  state_after_ = train::loader_state(state, where);
  prompts_.restore(state_after_);
  failures_.restore(state, where);
  const std::vector<int64_t> batch = whole_numbers(state, "batch", 3, where);
  const std::vector<int64_t> drafts = whole_numbers(state, "drafts", 2, where);
  last_ = {.groups_sampled = batch[0],
           .refills = batch[1],
           .dropped = batch[2],
           .speculation = {drafts[0], drafts[1]}};
  last_.coverage = prompts_.coverage(state_after_);
  if (!prompts_.difficulty().any() || !state.contains("difficulty")) return;
  const Json& difficulty = state["difficulty"];
  check<DataError>(difficulty.is_object() && difficulty.contains("success") &&
                       difficulty.contains("passed_over") &&
                       difficulty["passed_over"].is_number_integer(),
                   where, ": `difficulty` must hold `success` and `passed_over`");
  prompts_.difficulty().restore(difficulty["success"], where);
  last_.coverage = prompts_.coverage(state_after_);
  last_.passed_over = difficulty["passed_over"].get<int64_t>();
}

std::vector<std::pair<std::string, std::string>> SyncSource::summary() const {
  std::vector<std::pair<std::string, std::string>> summary = prompts_.summary();
  summary.emplace_back("completions whose reward failed", std::to_string(failures_.of_rewards()));
  return summary;
}

}  // namespace temper::rl
