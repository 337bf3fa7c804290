#include "temper/rl/sampled.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/metrics/trace.h"
#include "temper/nn/unit.h"
#include "temper/rl/model_reward.h"
#include "temper/rl/prompts.h"

namespace temper::rl {
namespace {

// Keys of evaluation prompts stand apart from those of training prompts, so that evaluating changes
// no sample.
constexpr int64_t kEvaluationKeys = int64_t{1} << 40;
constexpr int64_t kLeastJudged = 128;  // completions, before a run whose rewards all fail ends
constexpr int kMostEmptyBatches = 10;

// Under dynamic sampling batches draw more prompts than a pass over them has: the plan of steps is
// what ends the run, and the prompts go around.
data::LoaderOptions prompt_options(const RlConfig& config) {
  data::LoaderOptions options = train::loader_options(config, config.rl.prompts_per_rollout);
  if (config.rl.algorithm->max_refills() > 0) options.epochs.reset();
  return options;
}

// Ranks that compute the same rows schedule them alike.
generate::EngineOptions engine_options(const RlConfig& config, dist::Group& group) {
  generate::EngineOptions options{.cache_bytes = config.rollout.cache_bytes.value_or(0)};
  options.cache_bytes = std::stoll(group.agreed(str(generate::cache_bytes(options))));
  return options;
}

std::string to_lines(const std::vector<EpisodeGroup>& groups) {
  std::string lines;
  for (const EpisodeGroup& g : groups)
    for (const Episode& episode : g.episodes) lines += to_line(g, episode) + "\n";
  return lines;
}

}  // namespace

data::PromptFormat prompt_format(const RlConfig& config, const train::Policy& policy) {
  data::PromptFormat f;
  f.tokenizer = policy.tokenizer;
  f.chat = policy.chat;
  config.data.apply_to(f);
  f.vocabulary = policy.model->vocab_size;
  return f;
}

SampledSource::SampledSource(const RlConfig& config, train::Policy& policy, dist::Group& group,
                             train::Messages& messages, std::unique_ptr<Sampler> sampler)
    : config_(config),
      policy_(policy),
      group_(group),
      messages_(messages),
      loader_(data::training_sources(config.data, static_cast<uint64_t>(config.seed)),
              prompt_options(config), data::prompt_reader(prompt_format(config, policy))),
      engine_(*policy.model, engine_options(config, group), policy.tokenizer),
      sampler_(std::move(sampler)),
      rewards_(config.rewards, policy.tokenizer != nullptr),
      judge_(rewards_) {
  if (config.environment.any())
    episodes_ = std::make_unique<EpisodeSampler>(config.environment, prompt_format(config, policy),
                                                 config.rollout.options(config.seed),
                                                 policy.model->eos_token_ids);
  check_reward_models(config.rewards, policy.tokenizer.get(), policy.model->vocab_size);
  const data::PromptFormat format = prompt_format(config, policy);
  survey_ = train::survey_rows<data::PromptRow>(
      loader_.order(), [this, read = data::prompt_reader(format)](
                           const data::RowOrder::Drawn& drawn, data::LoaderState& state) {
        std::optional<data::PromptRow> row = read(drawn, state);
        if (row) rewards_.check_row(*row->fields, row->where);
        return row;
      });
  int64_t key = kEvaluationKeys;
  for (const data::SourceSpec& source :
       data::evaluation_sources(config.data, static_cast<uint64_t>(config.seed))) {
    const data::RowSet file(source);
    std::vector<Prompt>& prompts = evaluation_.emplace_back();
    for (int64_t r = 0; r < file.size(); ++r) {
      bool truncated = false;
      std::optional<data::PromptRow> row =
          data::read_prompt_row(format, file.row(r), file.where(r), &truncated);
      if (!row) continue;
      rewards_.check_row(*row->fields, row->where);
      prompts.push_back({key++, std::move(*row)});
    }
  }
}

int64_t SampledSource::planned_batches() const {
  return loader_.order().steps(config_.train.epochs.value_or(1), survey_);
}

void SampledSource::judge(const Prompt& prompt, const EpisodeGroup& group) {
  std::vector<rewards::Sample> samples;
  for (const Episode& episode : group.episodes) {
    rewards::Sample s;
    s.row = prompt.row.fields;
    s.where = prompt.row.where;
    s.prompt_tokens = group.prompt(episode);
    s.completion_tokens = group.completion(episode);
    if (policy_.tokenizer) s.prompt = policy_.tokenizer->decode(s.prompt_tokens, true);
    s.completion = episode.text;
    s.has_text = policy_.tokenizer != nullptr;
    s.truncated = !episode.stopped;
    s.max_new_tokens = config_.rollout.max_new_tokens;
    samples.push_back(std::move(s));
  }
  judge_.submit(group.id, std::move(samples));
}

void SampledSource::sample_completions(const std::vector<const Prompt*>& prompts, int64_t samples,
                                       PendingGroups& pending, const std::function<bool()>& stop) {
  std::vector<generate::RequestId> requests;
  const generate::GenerationOptions options = config_.rollout.options(config_.seed);
  for (const Prompt* prompt : prompts) {
    Pending& p = pending.at(prompt->key);
    p.group.segments.resize(static_cast<size_t>(samples) + 1);
    p.group.segments[0].tokens = prompt->row.tokens;
    p.group.episodes.resize(static_cast<size_t>(samples));
    requests.push_back(completions_->submit({prompt->key, prompt->row.tokens, samples, options}));
  }
  const auto done = [&](generate::Completion c) {
    if (c.cancelled) return;
    Pending& p = pending.at(c.index);
    const size_t s = static_cast<size_t>(c.sample);
    p.group.segments[s + 1] = {.parent = 0,
                               .tokens = std::move(c.tokens),
                               .sampled = true,
                               .logprobs = std::move(c.logprobs)};
    p.group.episodes[s].sample = c.sample;
    p.group.episodes[s].path = {static_cast<int32_t>(s) + 1};
    p.group.episodes[s].text = std::move(c.text);
    p.group.episodes[s].stopped = c.stopped;
    if (--p.unfinished == 0 && group_.leads()) judge(*p.prompt, p.group);
  };
  bool stopped = false;
  while (completions_->step({.done = done, .on_token = {}})) {
    if (stopped || !stop || !stop()) continue;
    stopped = true;
    for (const generate::RequestId id : requests) completions_->cancel(id);
  }
}

void SampledSource::sample_episodes(const std::vector<const Prompt*>& prompts, int64_t samples,
                                    PendingGroups& pending, const std::function<bool()>& stop,
                                    Statistics& statistics) {
  std::vector<EpisodeSampler::Ask> asks;
  for (const Prompt* prompt : prompts) asks.push_back({prompt->key, &prompt->row});
  const auto done = [&](size_t ask, std::vector<SampledEpisode> episodes) {
    Pending& p = pending.at(prompts[ask]->key);
    p.unfinished = 0;
    for (SampledEpisode& e : episodes) {
      statistics.dropped += e.dropped;
      if (!e.dropped) add_episode(p.group, e.prompt, std::move(e.episode), e.completion);
    }
    if (!p.group.episodes.empty()) judge(*p.prompt, p.group);
  };
  episodes_->run(*completions_, asks, samples, done, stop);
}

// Samples this rank's share of the prompts; a group is judged as soon as its last completion is
// done.
std::vector<EpisodeGroup> SampledSource::sample_mine(const std::vector<Prompt>& prompts,
                                                     int64_t samples, Statistics& statistics,
                                                     const std::function<bool()>& stop) {
  const double start = steady_seconds();
  std::optional<trace::Span> span(std::in_place, "rollout");
  PendingGroups pending;
  std::vector<const Prompt*> mine;
  for (size_t i = static_cast<size_t>(group_.rank()); i < prompts.size();
       i += static_cast<size_t>(group_.size())) {
    mine.push_back(&prompts[i]);
    pending[prompts[i].key] = {{.id = prompts[i].key}, &prompts[i], samples};
  }
  if (episodes_)
    sample_episodes(mine, samples, pending, stop, statistics);
  else
    sample_completions(mine, samples, pending, stop);
  completions_->rest();  // the next batch is sampled with other weights
  statistics.rollout_seconds += steady_seconds() - start;
  return judged_groups(std::move(pending), statistics);
}

// Waits for the rewards. Groups that were stopped are left out, and episodes that are dropped.
std::vector<EpisodeGroup> SampledSource::judged_groups(PendingGroups pending,
                                                       Statistics& statistics) {
  std::optional<trace::Span> span(std::in_place, "waiting for rewards");
  const std::map<int64_t, std::vector<rewards::RewardResult>> judged = judge_.collect();
  span.reset();
  statistics.reward_seconds += judge_.seconds_since_last_call();
  std::vector<EpisodeGroup> mine;
  for (auto& [key, p] : pending) {
    if (p.unfinished > 0 || !group_.leads()) continue;  // stopped
    std::vector<Episode> kept;
    statistics.judged += static_cast<int64_t>(p.group.episodes.size());
    for (size_t i = 0; i < p.group.episodes.size(); ++i) {
      const rewards::RewardResult& verdict = judged.at(key)[i];
      statistics.dropped += verdict.dropped;
      if (verdict.dropped) continue;
      Episode& episode = p.group.episodes[i];
      episode.reward += verdict.reward;
      for (size_t n = 0; n < rewards_.names().size(); ++n)
        episode.rewards.emplace_back(rewards_.names()[n], verdict.each[n]);
      kept.push_back(std::move(episode));
    }
    p.group.episodes = std::move(kept);
    if (!p.group.episodes.empty()) mine.push_back(std::move(p.group));
  }
  return group_.has_twins() ? from_lines({group_.agreed(to_lines(mine))}) : mine;
}

// The groups of all ranks, by id: lines of a rollouts file are what travels.
std::vector<EpisodeGroup> SampledSource::gather(std::vector<EpisodeGroup> mine) const {
  if (group_.size() == 1) return mine;
  return from_lines(group_.all_gather(to_lines(mine)));
}

std::vector<EpisodeGroup> SampledSource::from_lines(const std::vector<std::string>& texts) const {
  std::vector<EpisodeGroup> all;
  for (const std::string& text : texts) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      add_line(all, parse_json(line, "another rank"), policy_.model->vocab_size, "another rank");
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const EpisodeGroup& a, const EpisodeGroup& b) { return a.id < b.id; });
  return all;
}

// Groups until the batch is full; with dynamic sampling, those that the algorithm does not keep are
// replaced while max_refills allows. Where refilling ends early they fill the batch after all: its
// size stays what the config says.
std::vector<EpisodeGroup> SampledSource::fill(int64_t policy_version) {
  const Algorithm& algorithm = *config_.rl.algorithm;
  std::vector<EpisodeGroup> kept, set_aside;
  const int64_t wanted = config_.rl.prompts_per_rollout;
  while (true) {
    const int64_t first_key = loader_.state().rows;
    std::vector<Prompt> prompts;
    for (data::PromptRow& row : loader_.next(wanted - static_cast<int64_t>(kept.size())))
      prompts.push_back({first_key + static_cast<int64_t>(prompts.size()), std::move(row)});
    if (prompts.empty()) break;
    statistics_.groups_sampled += static_cast<int64_t>(prompts.size());
    for (EpisodeGroup& g : gather(sample_mine(prompts, config_.rl.group_size, statistics_))) {
      for (Segment& segment : g.segments) segment.policy_version = policy_version;
      const bool learns = algorithm.max_refills() == 0 || algorithm.keep(g);
      (learns ? kept : set_aside).push_back(std::move(g));
    }
    if (static_cast<int64_t>(kept.size()) >= wanted ||
        statistics_.refills == algorithm.max_refills())
      break;
    ++statistics_.refills;
  }
  for (EpisodeGroup& g : set_aside)
    if (static_cast<int64_t>(kept.size()) < wanted) kept.push_back(std::move(g));
  return kept;
}

// Failures of all ranks since `before`.
void SampledSource::count_failures(const rewards::FailureCounts& before,
                                   const EnvironmentCounts& in_episodes) {
  const rewards::FailureCounts& now = rewards_.failures();
  const EnvironmentCounts episodes = environment_counts();
  std::vector<double> sums{static_cast<double>(statistics_.dropped),
                           static_cast<double>(now.timed_out - before.timed_out),
                           static_cast<double>(now.crashed - before.crashed),
                           static_cast<double>(now.malformed - before.malformed),
                           static_cast<double>(statistics_.judged),
                           static_cast<double>(episodes.timed_out - in_episodes.timed_out),
                           static_cast<double>(episodes.crashed - in_episodes.crashed),
                           static_cast<double>(episodes.malformed - in_episodes.malformed),
                           static_cast<double>(episodes.unread_calls - in_episodes.unread_calls)};
  group_.all_reduce_sum(sums);
  const auto sum = [&](size_t i) { return static_cast<int64_t>(sums[i]); };
  statistics_.dropped = sum(0);
  failures_.timed_out += sum(1);
  failures_.crashed += sum(2);
  failures_.malformed += sum(3);
  judged_ += sum(4);
  environment_failures_.timed_out += sum(5);
  environment_failures_.crashed += sum(6);
  environment_failures_.malformed += sum(7);
  environment_failures_.unread_calls += sum(8);
}

// Of this rank, evaluations included.
EnvironmentCounts SampledSource::environment_counts() const {
  return episodes_ ? episodes_->counts() : EnvironmentCounts();
}

// A run in which no reward ever answers trains nothing.
void SampledSource::check_rewards() const {
  check(judged_ < kLeastJudged || environment_failures_.failures() < judged_,
        "the environment failed in all of the ", judged_,
        " episodes so far (the first: ", episodes_ ? episodes_->first_failure() : "",
        "); nothing would be trained");
  const int64_t asked = judged_ * static_cast<int64_t>(rewards_.names().size());
  check(asked == 0 || judged_ < kLeastJudged || failures_.all() < asked,
        "rewards failed on all of the ", judged_,
        " completions so far (the first: ", rewards_.first_failure(),
        "); nothing would be trained");
}

RolloutBatch SampledSource::next(int64_t policy_version) {
  const at::NoGradGuard no_grad;
  const nn::Gathered whole(*policy_.model);  // ranks make different numbers of passes
  const rewards::FailureCounts before = rewards_.failures();
  const EnvironmentCounts in_episodes = environment_counts();
  RolloutBatch batch;
  statistics_ = {};
  if (sampler_) {
    sampler_->use(policy_version);
    policy_version = sampler_->sampling_version(policy_version);
  }
  completions_ = sampler_ ? &sampler_->completions() : &engine_;
  for (int tries = 0; batch.groups.empty(); ++tries) {
    check(tries < kMostEmptyBatches, "every completion of ", kMostEmptyBatches,
          " rollout batches was dropped because its reward or environment failed (",
          rewards_.first_failure(), episodes_ ? episodes_->first_failure() : "",
          "); see rewards.on_failure and environment.on_failure");
    const int64_t drawn = loader_.state().draws;
    batch.groups = fill(policy_version);
    if (batch.groups.empty() && loader_.state().draws == drawn) break;  // the data has ended
  }
  count_failures(before, in_episodes);
  check_rewards();
  batch.rollout_seconds = group_.all_reduce_max(statistics_.rollout_seconds);
  batch.reward_seconds = group_.all_reduce_max(statistics_.reward_seconds);
  warn();
  return batch;
}

void SampledSource::warn() {
  if (failures_.all() > 0)
    messages_.warn_once("failures",
                        str("rewards failed on ", failures_.all(),
                            " completions (the first: ", rewards_.first_failure(),
                            "); they are handled as rewards.on_failure says and counted in "
                            "reward_timeouts, reward_crashes and reward_malformed"));
  if (environment_failures_.failures() > 0)
    messages_.warn_once("environment failures",
                        str("the environment failed ", environment_failures_.failures(),
                            " times (the first: ", episodes_->first_failure(),
                            "); this is handled as environment.on_failure says and counted in "
                            "environment_timeouts, environment_crashes and environment_malformed"));
  const data::LoaderState& prompts = loader_.state();
  const int64_t limit = config_.data.max_length;
  if (prompts.truncated > 0)
    messages_.warn_once("truncated prompts", str("prompts longer than data.max_length, ", limit,
                                                 " tokens, are cut to their last ", limit));
  if (prompts.dropped > 0)
    messages_.warn_once("dropped prompts", str("prompts longer than data.max_length, ", limit,
                                               " tokens, are left out"));
}

void SampledSource::describe(MetricsRow& row) const {
  if (config_.rl.algorithm->max_refills() > 0) {
    row.set("groups_sampled", statistics_.groups_sampled);
    row.set("refills", statistics_.refills);
  }
  row.set("completions_dropped", statistics_.dropped);
  row.set("reward_timeouts", failures_.timed_out);
  row.set("reward_crashes", failures_.crashed);
  row.set("reward_malformed", failures_.malformed);
  if (!episodes_) return;
  row.set("environment_timeouts", environment_failures_.timed_out);
  row.set("environment_crashes", environment_failures_.crashed);
  row.set("environment_malformed", environment_failures_.malformed);
  row.set("tool_calls_unread", environment_failures_.unread_calls);
}

bool SampledSource::evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) {
  if (evaluation_.empty()) return false;
  const at::NoGradGuard no_grad;
  Statistics ignored;
  completions_ = &engine_;  // the policy as it is
  for (size_t set = 0; set < evaluation_.size() && !stop(); ++set) {
    for (const EpisodeGroup& g : sample_mine(evaluation_[set], 1, ignored, stop)) {
      for (const Episode& e : g.episodes) {
        sums.add_mean(set, "reward_mean", e.reward, 1);
        for (const auto& [name, value] : e.rewards) sums.add_mean(set, "rewards/" + name, value, 1);
        sums.add_mean(set, "completion_length_mean", static_cast<double>(g.sampled_tokens(e)), 1);
        sums.add_mean(set, "truncated_fraction", e.stopped ? 0 : 1, 1);
        if (e.turns > 0) sums.add_mean(set, "turns_mean", static_cast<double>(e.turns), 1);
        sums.add_total(set, "rows", 1);
      }
    }
  }
  return true;
}

void SampledSource::keep(int64_t policy_version) {
  if (sampler_) sampler_->keep(policy_version);
}

void SampledSource::share_processors(bool training) {
  if (sampler_) sampler_->share_processors(training);
}

void SampledSource::stop() {
  if (sampler_) sampler_->stop();
}

Json SampledSource::state() const {
  return {{"loader", loader_.state().to_json()},
          {"reward_failures", {failures_.timed_out, failures_.crashed, failures_.malformed}},
          {"environment_failures",
           {environment_failures_.timed_out, environment_failures_.crashed,
            environment_failures_.malformed, environment_failures_.unread_calls}},
          {"judged", judged_},
          {"batch", {statistics_.groups_sampled, statistics_.refills, statistics_.dropped}}};
}

void SampledSource::restore(const Json& state, const std::string& where) {
  loader_.restore(train::loader_state(state, where));
  const auto numbers = [&](const char* key, size_t count) {
    const Json counts = state.value(key, Json(std::vector<int64_t>(count)));
    check<DataError>(counts.is_array() && counts.size() == count &&
                         std::all_of(counts.begin(), counts.end(),
                                     [](const Json& n) { return n.is_number_integer(); }),
                     where, ": `", key, "` must be ", count, " whole numbers");
    return counts.get<std::vector<int64_t>>();
  };
  const std::vector<int64_t> failures = numbers("reward_failures", 3), batch = numbers("batch", 3),
                             episodes = numbers("environment_failures", 4);
  environment_failures_ = {episodes[0], episodes[1], episodes[2], episodes[3]};
  failures_ = {failures[0], failures[1], failures[2]};
  statistics_ = {};
  statistics_.groups_sampled = batch[0];
  statistics_.refills = batch[1];
  statistics_.dropped = batch[2];
  const Json judged = state.value("judged", Json(0));
  judged_ = judged.is_number_integer() ? judged.get<int64_t>() : 0;
}

std::vector<std::pair<std::string, std::string>> SampledSource::summary() const {
  return {{"prompts cut", std::to_string(loader_.state().truncated)},
          {"prompts left out", std::to_string(loader_.state().dropped)},
          {"completions whose reward failed", std::to_string(failures_.all())}};
}

}  // namespace temper::rl
