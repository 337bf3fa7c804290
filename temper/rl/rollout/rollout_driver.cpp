#include "temper/rl/rollout/rollout_driver.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/dist/peer_watch.h"
#include "temper/generate/remote/server_pool.h"
#include "temper/metrics/activity.h"
#include "temper/metrics/trace.h"
#include "temper/models/vision/image_rows.h"
#include "temper/nn/unit.h"
#include "temper/train/run/agreed_error.h"

namespace temper::rl {
namespace {

// Tensor-parallel ranks get the same options, so that they schedule the same rows alike.
generate::EngineOptions engine_options(const RlConfig& config, dist::Group& group) {
  generate::EngineOptions options = config.rollout.engine_options();
  options.cache_bytes = std::stoll(group.agreed(str(generate::cache_bytes(options))));
  return options;
}

std::unique_ptr<EpisodeSampler> episode_sampler(const RlConfig& config,
                                                const train::Policy& policy) {
  if (!config.environment.any()) return nullptr;
  return make_episode_sampler(config.environment, prompt_format(config, policy),
                              config.rollout.options(config.seed), policy.model->eos_token_ids,
                              config.rewards.empty());
}

}  // namespace

RolloutDriver::RolloutDriver(const RlConfig& config, train::Policy& policy, dist::Group& group,
                             std::unique_ptr<BehaviorPolicy> behavior, Done done)
    : config_(config),
      policy_(policy),
      group_(group),
      done_(std::move(done)),
      memory_(config.train),
      engine_(*policy.model, engine_options(config, group), policy.tokenizer),
      behavior_(std::move(behavior)),
      episodes_(episode_sampler(config, policy)) {}

bool RolloutDriver::samples_here() const {
  return completions_ == &engine_ || behavior_->samples_here();
}

void RolloutDriver::check_sampled(const std::string& why) const {
  for (const std::string& of_rank : group_.all_gather(group_.agreed(why)))
    if (!of_rank.empty())
      throw train::AgreedError(
          "sampling failed: " + of_rank + "; the same command resumes" +
          (config_.roles.rollout.empty() ? "" : ", with roles={} without ranks of their own"));
}

// A prompt's completions that begin together share its forward pass; one that goes on has a request
// of its own.
void RolloutDriver::sample_completions(const std::vector<Stage>& stages, const char* what,
                                       const std::function<bool()>& stop) {
  std::map<int64_t, std::pair<PartialGroup*, PartialBatch*>> groups;  // by the group's key
  std::vector<generate::RequestId> requests;
  const generate::GenerationOptions options = config_.rollout.options(config_.seed);
  const auto submit = [&](const PartialGroup& group, int64_t max_tokens, int64_t first,
                          int64_t samples, const std::vector<int32_t>& begun) {
    generate::Request request{group.prompt->key, group.prompt->row.tokens, samples, options};
    request.prompt.insert(request.prompt.end(), begun.begin(), begun.end());
    request.rows = models::external_rows(group.prompt->row.images);
    request.begun = request.position = std::ssize(begun);
    request.first_sample = first;
    request.options.max_new_tokens = max_tokens - request.begun;
    request.options.min_new_tokens = std::min(options.min_new_tokens, max_tokens);
    requests.push_back(completions_->submit(std::move(request)));
  };
  for (const Stage& stage : stages) {
    for (auto& [key, group] : stage.batch->mine) {
      groups[key] = {&group, stage.batch};
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
  int64_t asked = 0;
  for (const Stage& stage : stages)
    for (const auto& [key, group] : stage.batch->mine) asked += group.unfinished;
  Activity activity(what, asked);
  const auto done = [&](generate::Completion c) {
    if (c.cancelled) return;
    auto& [at, batch] = groups.at(c.index);
    PartialGroup& group = *at;
    PartialCompletion& partial = group.completions[static_cast<size_t>(c.sample)];
    partial.add({.tokens = std::move(c.tokens),
                 .sampled = true,
                 .kept = std::move(c.kept),
                 .logprobs = std::move(c.logprobs),
                 .policy_version = version_});
    partial.text = std::move(c.text);
    partial.stopped = c.stopped;
    partial.seconds += steady_seconds() - began_;
    const bool ended = c.stopped || partial.length() >= options.max_new_tokens;
    if (ended) batch->latencies.push_back(static_cast<float>(partial.seconds));
    if (ended) activity.advance();
    if (!ended || --group.unfinished > 0) return;
    group.assemble();
    done_(group);
  };
  bool stopped = false;
  while (completions_->step({.done = done, .on_token = {}})) {
    activity.advance(0);
    if (stopped || !stop || !stop()) continue;
    stopped = true;
    for (const generate::RequestId id : requests) completions_->cancel(id);
  }
}

void RolloutDriver::sample_episodes(PartialBatch& batch, const char* what,
                                    const std::function<bool()>& stop) {
  std::vector<EpisodeSampler::Ask> asks;
  std::vector<PartialGroup*> groups;
  for (auto& [key, group] : batch.mine) {
    asks.push_back({key, &group.prompt->row});
    groups.push_back(&group);
  }
  const int64_t samples = groups.empty() ? 0 : groups[0]->unfinished;
  Activity activity(what, samples * std::ssize(groups));
  const auto done = [&](size_t ask, std::vector<SampledEpisode> episodes) {
    activity.advance(samples);
    PartialGroup& group = *groups[ask];
    group.unfinished = 0;
    for (SampledEpisode& e : episodes) {
      ++batch.episodes;
      batch.failed_episodes += e.failed;
      batch.counts.dropped += e.dropped;
      batch.latencies.push_back(static_cast<float>(e.ended - began_));
      if (!e.dropped)
        add_episode(group.episodes, e.prompt, std::move(e.episode), e.completion, version_,
                    e.prompt_images);
    }
    if (!group.episodes.episodes.empty()) done_(group);
  };
  episodes_->run(*completions_, asks, samples, done, [&] {
    activity.advance(0);
    return stop && stop();
  });
}

void RolloutDriver::use(int64_t policy_version) {
  version_ = policy_version;
  if (behavior_) {
    behavior_->use(policy_version);
    version_ = behavior_->sampling_version(policy_version);
  }
  completions_ = behavior_ ? &behavior_->completions() : &engine_;
}

void RolloutDriver::sample_stages(const std::vector<Stage>& stages, const char* what,
                                  const std::function<bool()>& stop) {
  const double start = began_ = steady_seconds();
  const trace::Span span("rollout");
  const generate::Speculation::Statistics before = completions_->speculation();
  std::string why;
  try {
    if (!samples_here() && !group_.leads())
      for (const Stage& stage : stages) stage.batch->mine.clear();  // another rank asks for them
    else if (episodes_)
      for (const Stage& stage : stages) sample_episodes(*stage.batch, what, stop);
    else
      sample_completions(stages, what, stop);
  } catch (const generate::remote::NoServer& e) {
    why = e.what();
  }
  if (!samples_here()) check_sampled(why);
  completions_->rest();  // the next completions are sampled with other weights
  BatchCounts& first = stages.front().batch->counts;  // gets what several batches share
  first.speculation = first.speculation + (completions_->speculation() - before);
  for (const Stage& stage : stages)
    stage.batch->rollout_seconds += (steady_seconds() - start) / static_cast<double>(stages.size());
}

void RolloutDriver::sample(const std::vector<Stage>& stages, int64_t policy_version) {
  const at::NoGradGuard no_grad;
  std::optional<nn::Gathered> whole;  // ranks make different numbers of passes
  if (!behavior_ || behavior_->samples_here()) whole.emplace(*policy_.model);
  use(policy_version);
  if (episodes_) episodes_->name_weights(str("update-", version_));
  sample_stages(stages, "sampling", [this] {
    dist::check_peers();
    look_();
    memory_.check("sampling");
    return stopping_.load();
  });
  check_running();  // a stopped run drops the samples
}

void RolloutDriver::sample_with_policy(const Stage& stage, const std::function<bool()>& stop) {
  const at::NoGradGuard no_grad;
  completions_ = &engine_;
  if (episodes_) episodes_->name_weights("evaluated");
  sample_stages({stage}, "evaluating", stop);
}

void RolloutDriver::keep(int64_t policy_version) {
  if (behavior_) behavior_->keep(policy_version);
}

void RolloutDriver::share_processors(bool training) {
  if (behavior_) behavior_->share_processors(training);
}

void RolloutDriver::check_running() const {
  dist::check_peers();
  check(!stopping_, "sampling was stopped: the run is ending");
}

void RolloutDriver::stop() {
  stopping_ = true;
  if (behavior_) behavior_->stop();
}

}  // namespace temper::rl
