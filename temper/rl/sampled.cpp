#include "temper/rl/sampled.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/generate/remote/server_pool.h"
#include "temper/metrics/trace.h"
#include "temper/nn/unit.h"
#include "temper/rl/model_reward.h"
#include "temper/rl/rollout_lines.h"
#include "temper/train/agreed_error.h"

namespace temper::rl {
namespace {

constexpr int kMostEmptyBatches = 10;

// Ranks that compute the same rows schedule them alike.
generate::EngineOptions engine_options(const RlConfig& config, dist::Group& group) {
  generate::EngineOptions options = config.rollout.engine_options();
  options.cache_bytes = std::stoll(group.agreed(str(generate::cache_bytes(options))));
  return options;
}

std::unique_ptr<EpisodeSampler> episode_sampler(const RlConfig& config,
                                                const train::Policy& policy) {
  if (!config.environment.any()) return nullptr;
  return std::make_unique<EpisodeSampler>(config.environment, prompt_format(config, policy),
                                          config.rollout.options(config.seed),
                                          policy.model->eos_token_ids);
}

}  // namespace

SampledSource::SampledSource(const RlConfig& config, train::Policy& policy, dist::Group& group,
                             train::Messages& messages, std::unique_ptr<Sampler> sampler,
                             std::unique_ptr<ReferenceAsker> asker)
    : config_(config),
      policy_(policy),
      group_(group),
      messages_(messages),
      rewards_(config.rewards, policy.tokenizer != nullptr),
      prompts_(config, policy, rewards_),
      engine_(*policy.model, engine_options(config, group), policy.tokenizer),
      sampler_(std::move(sampler)),
      asker_(std::move(asker)),
      episodes_(episode_sampler(config, policy)),
      judge_(rewards_),
      failures_(rewards_, episodes_.get()),
      behind_(prompts_.state()) {
  if (episodes_ && !episodes_->shows_tools()) messages_.warn_once("tools", kHiddenTools);
  check_reward_models(config.rewards, policy.tokenizer.get(), policy.model->vocab_size);
}

Draft SampledSource::draw(int64_t prompts) {
  Draft draft;
  draft.from = prompts_.state();
  draft.prompts = prompts_.next(prompts);
  draft.behind = prompts_.state();
  return draft;
}

// This rank's share of the prompts, with nothing sampled yet.
void SampledSource::deal(Draft& draft, int64_t samples) const {
  for (size_t i = static_cast<size_t>(group_.rank()); i < draft.prompts.size();
       i += static_cast<size_t>(group_.size())) {
    PartialGroup& group = draft.mine[draft.prompts[i].key];
    group.prompt = &draft.prompts[i];
    group.unfinished = samples;
    group.completions.resize(episodes_ ? 0 : static_cast<size_t>(samples));
    group.episodes.id = group.prompt->key;
  }
}

std::unique_ptr<Draft> SampledSource::begin() {
  auto draft = std::make_unique<Draft>(draw(config_.rl.prompts_per_rollout));
  if (draft->prompts.empty()) return nullptr;
  draft->groups_sampled = static_cast<int64_t>(draft->prompts.size());
  deal(*draft, config_.rl.group_size);
  return draft;
}

void SampledSource::judge(const PartialGroup& partial) {
  const Prompt& prompt = *partial.prompt;
  const EpisodeGroup& group = partial.episodes;
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

bool SampledSource::samples_here() const {
  return completions_ == &engine_ || sampler_->samples_here();
}

void SampledSource::check_sampled(const std::string& why) const {
  for (const std::string& of_rank : group_.all_gather(group_.agreed(why)))
    if (!of_rank.empty())
      throw train::AgreedError("no rank is left that samples: " + of_rank +
                               "; the same command resumes, with roles={} without such ranks");
}

// Of ranks that compute the same rows one asks for all.
void SampledSource::sampled(const PartialGroup& group) {
  if (!group_.leads()) return;
  judge(group);
  if (asker_ && completions_ != &engine_) asker_->submit(group.episodes);
}

// A prompt's completions that begin together share its forward pass; one that goes on has a request
// of its own.
void SampledSource::sample_completions(const std::vector<Stage>& stages,
                                       const std::function<bool()>& stop) {
  std::map<int64_t, PartialGroup*> groups;  // by key
  std::vector<generate::RequestId> requests;
  const generate::GenerationOptions options = config_.rollout.options(config_.seed);
  const auto submit = [&](const PartialGroup& group, int64_t max_tokens, int64_t first,
                          int64_t samples, const std::vector<int32_t>& begun) {
    generate::Request request{group.prompt->key, group.prompt->row.tokens, samples, options};
    request.prompt.insert(request.prompt.end(), begun.begin(), begun.end());
    request.begun = request.position = std::ssize(begun);
    request.first_sample = first;
    request.options.max_new_tokens = max_tokens - request.begun;
    request.options.min_new_tokens = std::min(options.min_new_tokens, max_tokens);
    requests.push_back(completions_->submit(std::move(request)));
  };
  for (const Stage& stage : stages) {
    for (auto& [key, group] : stage.draft->mine) {
      groups[key] = &group;
      const std::vector<PartialCompletion>& all = group.completions;
      if (group.is_fresh()) {
        submit(group, stage.max_tokens, 0, std::ssize(all), {});
        continue;
      }
      for (size_t s = 0; s < all.size(); ++s)
        if (!all[s].stopped && all[s].length() < stage.max_tokens)
          submit(group, stage.max_tokens, static_cast<int64_t>(s), 1, all[s].tokens());
    }
  }
  const auto done = [&](generate::Completion c) {
    if (c.cancelled) return;
    PartialGroup& group = *groups.at(c.index);
    PartialCompletion& partial = group.completions[static_cast<size_t>(c.sample)];
    partial.add({.tokens = std::move(c.tokens),
                 .sampled = true,
                 .logprobs = std::move(c.logprobs),
                 .policy_version = version_});
    partial.text = std::move(c.text);
    partial.stopped = c.stopped;
    const bool ended = c.stopped || partial.length() >= options.max_new_tokens;
    if (!ended || --group.unfinished > 0) return;
    group.assemble();
    sampled(group);
  };
  bool stopped = false;
  while (completions_->step({.done = done, .on_token = {}})) {
    if (stopped || !stop || !stop()) continue;
    stopped = true;
    for (const generate::RequestId id : requests) completions_->cancel(id);
  }
}

void SampledSource::sample_episodes(Draft& draft, const std::function<bool()>& stop) {
  std::vector<EpisodeSampler::Ask> asks;
  std::vector<PartialGroup*> groups;
  for (auto& [key, group] : draft.mine) {
    asks.push_back({key, &group.prompt->row});
    groups.push_back(&group);
  }
  const auto done = [&](size_t ask, std::vector<SampledEpisode> episodes) {
    PartialGroup& group = *groups[ask];
    group.unfinished = 0;
    for (SampledEpisode& e : episodes) {
      draft.dropped += e.dropped;
      if (!e.dropped)
        add_episode(group.episodes, e.prompt, std::move(e.episode), e.completion, version_);
    }
    if (!group.episodes.episodes.empty()) sampled(group);
  };
  const int64_t samples = groups.empty() ? 0 : groups[0]->unfinished;
  episodes_->run(*completions_, asks, samples, done, stop);
}

void SampledSource::use(int64_t policy_version) {
  version_ = policy_version;
  if (sampler_) {
    sampler_->use(policy_version);
    version_ = sampler_->sampling_version(policy_version);
  }
  completions_ = sampler_ ? &sampler_->completions() : &engine_;
}

// A group is judged as soon as its last completion is done.
void SampledSource::sample_drafts(const std::vector<Stage>& stages,
                                  const std::function<bool()>& stop) {
  const double start = steady_seconds();
  const trace::Span span("rollout");
  const generate::Speculation::Statistics before = completions_->speculation();
  std::string why;
  try {
    if (!samples_here() && !group_.leads())
      for (const Stage& stage : stages) stage.draft->mine.clear();  // another rank asks for them
    else if (episodes_)
      for (const Stage& stage : stages) sample_episodes(*stage.draft, stop);
    else
      sample_completions(stages, stop);
  } catch (const generate::remote::NoServer& e) {
    why = e.what();
  }
  if (!samples_here()) check_sampled(why);
  completions_->rest();                  // what comes next is sampled with other weights
  Draft& first = *stages.front().draft;  // of several, what they share counts once
  first.speculation = first.speculation + (completions_->speculation() - before);
  for (const Stage& stage : stages)
    stage.draft->rollout_seconds += (steady_seconds() - start) / static_cast<double>(stages.size());
}

void SampledSource::sample(const std::vector<Stage>& stages, int64_t policy_version) {
  const at::NoGradGuard no_grad;
  std::optional<nn::Gathered> whole;  // ranks make different numbers of passes
  if (!sampler_ || sampler_->samples_here()) whole.emplace(*policy_.model);
  use(policy_version);
  sample_drafts(stages, [this] { return stopping_.load(); });
  check_goes_on();
}

// Waits for the rewards. Groups that were stopped are left out, and episodes that are dropped.
std::vector<EpisodeGroup> SampledSource::judged_groups(Draft& draft) {
  std::optional<trace::Span> span(std::in_place, "waiting for rewards");
  verdicts_.merge(judge_.collect());
  if (asker_) scored_.merge(asker_->collect());
  span.reset();
  draft.reward_seconds += judge_.seconds_since_last_call();
  std::vector<EpisodeGroup> mine;
  for (auto& [key, partial] : draft.mine) {
    if (partial.unfinished > 0 || !group_.leads()) continue;  // stopped
    EpisodeGroup& group = partial.episodes;
    if (auto scored = scored_.extract(key))
      for (size_t i = 0; i < group.segments.size(); ++i)
        group.segments[i].ref_logp = std::move(scored.mapped().segments[i].ref_logp);
    const std::vector<rewards::RewardResult> judged = std::move(verdicts_[key]);
    verdicts_.erase(key);
    std::vector<Episode> kept;
    draft.judged += std::ssize(group.episodes);
    for (size_t i = 0; i < group.episodes.size(); ++i) {
      const rewards::RewardResult& verdict = judged.at(i);
      draft.dropped += verdict.dropped;
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
  return group_.has_twins() ? from_lines({group_.agreed(to_lines(mine, asker_ != nullptr))}) : mine;
}

// The groups of all ranks, by id: lines of a rollouts file are what travels.
std::vector<EpisodeGroup> SampledSource::gather(std::vector<EpisodeGroup> mine) const {
  if (group_.size() == 1) return mine;
  return from_lines(group_.all_gather(to_lines(mine, asker_ != nullptr)));
}

std::vector<EpisodeGroup> SampledSource::from_lines(const std::vector<std::string>& texts) const {
  std::vector<EpisodeGroup> all;
  for (const std::string& text : texts)
    add_lines(all, text, policy_.model->vocab_size, "another rank");
  std::stable_sort(all.begin(), all.end(),
                   [](const EpisodeGroup& a, const EpisodeGroup& b) { return a.id < b.id; });
  return all;
}

// The draft's groups; with dynamic sampling, those that the algorithm does not keep are replaced
// while max_refills allows. Where refilling ends early they fill the batch after all: its size
// stays what the config says. An empty batch is drawn anew.
std::vector<EpisodeGroup> SampledSource::fill(Draft& draft, int64_t policy_version) {
  const Algorithm& algorithm = *config_.rl.algorithm;
  std::vector<EpisodeGroup> kept, set_aside;
  const int64_t wanted = config_.rl.prompts_per_rollout, most = config_.rollout.max_new_tokens;
  while (true) {
    for (EpisodeGroup& g : gather(judged_groups(draft))) {
      const bool learns = algorithm.max_refills() == 0 || algorithm.keep(g);
      (learns ? kept : set_aside).push_back(std::move(g));
    }
    if (std::ssize(kept) >= wanted || draft.refills == algorithm.max_refills()) break;
    ++draft.refills;
    Draft more = draw(wanted - std::ssize(kept));
    draft.behind = more.behind;
    if (more.prompts.empty()) break;
    draft.groups_sampled += std::ssize(more.prompts);
    draft.prompts = std::move(more.prompts);
    draft.mine.clear();
    deal(draft, config_.rl.group_size);
    sample({{&draft, most}}, policy_version);
  }
  for (EpisodeGroup& g : set_aside)
    if (std::ssize(kept) < wanted) kept.push_back(std::move(g));
  return kept;
}

RolloutBatch SampledSource::finish(Draft& draft, int64_t policy_version) {
  RolloutBatch batch;
  batch.groups = fill(draft, policy_version);
  for (int tries = 1; batch.groups.empty(); ++tries) {
    check(tries < kMostEmptyBatches, "every completion of ", kMostEmptyBatches,
          " rollout batches was dropped because its reward or environment failed (",
          failures_.first(), "); see rewards.on_failure and environment.on_failure");
    std::unique_ptr<Draft> another = begin();
    if (!another) break;  // the data has ended
    sample({{another.get(), config_.rollout.max_new_tokens}}, policy_version);
    another->groups_sampled += draft.groups_sampled;
    another->refills = draft.refills;
    another->dropped += draft.dropped;
    another->speculation = another->speculation + draft.speculation;
    another->judged += draft.judged;
    another->rollout_seconds += draft.rollout_seconds;
    another->reward_seconds += draft.reward_seconds;
    draft = std::move(*another);
    batch.groups = fill(draft, policy_version);
  }
  failures_.count(draft, group_);
  std::vector<double> drafted{static_cast<double>(draft.speculation.drafted_tokens),
                              static_cast<double>(draft.speculation.accepted_tokens)};
  group_.all_reduce_sum(drafted);
  speculation_ = {static_cast<int64_t>(drafted[0]), static_cast<int64_t>(drafted[1])};
  behind_ = draft.behind;
  groups_sampled_ = draft.groups_sampled;
  refills_ = draft.refills;
  dropped_ = draft.dropped;
  batch.rollout_seconds = group_.all_reduce_max(draft.rollout_seconds);
  batch.reward_seconds = group_.all_reduce_max(draft.reward_seconds);
  failures_.warn(messages_);
  prompts_.warn(messages_);
  return batch;
}

RolloutBatch SampledSource::next(int64_t policy_version) {
  const std::unique_ptr<Draft> draft = begin();
  if (!draft) return {};
  sample({{draft.get(), config_.rollout.max_new_tokens}}, policy_version);
  return finish(*draft, policy_version);
}

std::string SampledSource::lines(const Draft& draft) const {
  std::string all;
  for (const std::string& text : group_.all_gather(draft.lines())) all += text;
  return all;
}

std::unique_ptr<Draft> SampledSource::resume(const std::string& lines, int64_t max_tokens,
                                             const std::string& where) {
  std::unique_ptr<Draft> draft = begin();
  check<DataError>(draft != nullptr, where, ": a rollout batch goes on behind the end of the data");
  draft->fill(lines, policy_.model->vocab_size, config_.rollout.max_new_tokens, where);
  for (const auto& [key, group] : draft->mine) {
    for (const PartialCompletion& c : group.completions)
      check<DataError>(c.stopped || c.length() == max_tokens, where,
                       ": a completion of a rollout batch that was begun is missing");
    if (group.unfinished == 0) sampled(group);
  }
  return draft;
}

void SampledSource::describe(MetricsRow& row) const {
  if (config_.rl.algorithm->max_refills() > 0) {
    row.set("groups_sampled", groups_sampled_);
    row.set("refills", refills_);
  }
  // In episodes it would depend on when their environments answered.
  if (const auto [drafted, accepted] = speculation_; drafted > 0 && !episodes_)
    row.set("speculative_accepted", static_cast<double>(accepted) / static_cast<double>(drafted));
  row.set("completions_dropped", dropped_);
  failures_.describe(row);
}

bool SampledSource::evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) {
  if (prompts_.evaluation().empty()) return false;
  const at::NoGradGuard no_grad;
  completions_ = &engine_;  // the policy as it is
  for (size_t set = 0; set < prompts_.evaluation().size() && !stop(); ++set) {
    Draft draft;
    draft.prompts = prompts_.evaluation()[set];
    deal(draft, 1);
    sample_drafts({{&draft, config_.rollout.max_new_tokens}}, stop);
    for (const EpisodeGroup& g : judged_groups(draft)) {
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
  failures_.pass_over();
  return true;
}

void SampledSource::keep(int64_t policy_version) {
  if (sampler_) sampler_->keep(policy_version);
}

void SampledSource::share_processors(bool training) {
  if (sampler_) sampler_->share_processors(training);
}

// What was sampled of a batch is given up.
void SampledSource::check_goes_on() const {
  check(!stopping_, "sampling was stopped: the run is ending");
}

void SampledSource::stop() {
  stopping_ = true;
  if (sampler_) sampler_->stop();
}

Json SampledSource::state() const {
  Json state = failures_.state();
  state["loader"] = behind_.to_json();
  state["batch"] = {groups_sampled_, refills_, dropped_};
  state["drafts"] = {speculation_.drafted_tokens, speculation_.accepted_tokens};
  return state;
}

void SampledSource::restore(const Json& state, const std::string& where) {
  behind_ = train::loader_state(state, where);
  prompts_.restore(behind_);
  failures_.restore(state, where);
  const std::vector<int64_t> batch = whole_numbers(state, "batch", 3, where);
  groups_sampled_ = batch[0];
  refills_ = batch[1];
  dropped_ = batch[2];
  const std::vector<int64_t> drafts = whole_numbers(state, "drafts", 2, where);
  speculation_ = {drafts[0], drafts[1]};
}

std::vector<std::pair<std::string, std::string>> SampledSource::summary() const {
  std::vector<std::pair<std::string, std::string>> summary = prompts_.summary();
  summary.emplace_back("completions whose reward failed", std::to_string(failures_.of_rewards()));
  return summary;
}

}  // namespace temper::rl
