#include "temper/rl/episodes/episode_driver.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/env/messages.h"
#include "temper/models/vision/image_rows.h"
#include "temper/rl/episodes/live_episode.h"

namespace temper::rl {

// An episode from its reset to its close.
struct EpisodeDriver::Live {
  size_t ask = 0;
  int64_t sample = 0;
  int64_t number = 0;  // the pool's number of the episode
  std::optional<LiveEpisode> state;
  int64_t turns = 0;
  double reward = 0;
  std::vector<double> turn_rewards;  // of the turns that were answered
  double before = 0;                 // the reward before the first turn, which counts as its own
  double began = steady_seconds();
  bool stopped = true;
  bool alone = false;  // its environment has failed before the first turn
  bool dropped = false;
  bool failed = false;
  bool rewarded = false;
};

// The episodes of one call of run().
struct EpisodeDriver::Batch {
  generate::CompletionSource& source;
  const std::vector<Ask>& asks;
  const Done& done;
  std::map<int64_t, Live> open;  // episodes by the pool's number
  // open episodes whose turn is being sampled, by request
  std::map<generate::RequestId, int64_t> sampling;
  std::vector<std::vector<SampledEpisode>> ended;  // [asks] ended episodes
  std::vector<int64_t> unfinished;                 // [asks] number of unfinished episodes
};

EpisodeDriver::EpisodeDriver(const env::EnvironmentSection& section, data::PromptFormat format,
                             generate::GenerationOptions options,
                             const std::vector<int32_t>& eos_token_ids)
    : EpisodeSampler(section),
      format_(std::move(format)),
      options_(std::move(options)),
      ends_(options_.stop_token_ids),
      pool_(section) {
  if (!options_.ignore_eos) ends_.insert(ends_.end(), eos_token_ids.begin(), eos_token_ids.end());
  check_environment(section_, format_);
}

bool EpisodeDriver::shows_tools() const {
  if (section_.tools.empty()) return true;
  const Json messages = Json::array({{{"role", "user"}, {"content", "?"}}});
  return format_.chat->render(messages, env::tool_definitions(section_.tools), true) !=
         format_.chat->render(messages, Json(), true);
}

void EpisodeDriver::run(generate::CompletionSource& source, const std::vector<Ask>& asks,
                        int64_t samples, const Done& done, const std::function<bool()>& stop) {
  Batch batch{source, asks, done, {}, {}, {}, {}};
  batch.ended.resize(asks.size());
  batch.unfinished.assign(asks.size(), samples);
  for (size_t i = 0; i < asks.size(); ++i) {
    batch.ended[i].resize(static_cast<size_t>(samples));
    for (int64_t s = 0; s < samples; ++s) {
      const int64_t number = pool_.open(asks[i].row->fields, asks[i].row->where);
      Live& live = batch.open[number];
      live.ask = i;
      live.sample = s;
      live.number = number;
    }
  }
  const generate::Callbacks callbacks{
      .done = [&](generate::Completion turn) { sampled(batch, std::move(turn)); }, .on_token = {}};
  while (!batch.open.empty()) {
    const bool busy = source.step(callbacks);
    // The pool numbers the episodes of an earlier batch that was stopped, too.
    for (env::Reply& reply : pool_.take(std::chrono::milliseconds(busy ? 0 : 100)))
      if (batch.open.contains(reply.episode)) answered(batch, std::move(reply));
    if (section_.episode_seconds) end_overdue(batch);
    if (!stop || !stop()) continue;
    for (const auto& [request, number] : batch.sampling) source.cancel(request);
    for (const auto& [number, live] : batch.open) pool_.close(number);
    batch.sampling.clear();
    while (source.step({.done = [](const generate::Completion&) {}, .on_token = {}})) {
    }
    return;
  }
}

void EpisodeDriver::answered(Batch& batch, env::Reply reply) {
  Live& live = batch.open.at(reply.episode);
  if (live.alone) return;  // it comes too late
  counts_.malformed += reply.unasked_lines;
  counts_.unread_calls += reply.unread_calls;
  for (const env::Failure& failure : reply.tool_failures) count(failure);
  // the environment's failure is the cause to report
  if (reply.failure) return fail(batch, live, *reply.failure);
  if (reply.unasked_lines > 0) keep_first(reply.unasked);
  try {
    if (!live.state)
      begin(batch, live, reply.observation);
    else
      go_on(batch, live, reply.observation);
  } catch (const PromptTooLong&) {
    if (format_.overlong == data::Overlong::kError) throw;
    live.dropped = true;
    finish(batch, live);
  } catch (const DataError& e) {
    fail(batch, live,
         {env::Failure::Kind::kMalformed,
          std::string("the environment's messages cannot be rendered: ") + e.what()});
  }
}

void EpisodeDriver::begin(Batch& batch, Live& live, const env::Observation& first) {
  live.state.emplace(format_, *batch.asks[live.ask].row, first);
  live.reward += first.reward;
  live.before = first.reward;
  submit(batch, live);
}

void EpisodeDriver::go_on(Batch& batch, Live& live, const env::Observation& next) {
  live.reward += next.reward;
  live.turn_rewards.push_back(next.reward + std::exchange(live.before, 0));
  live.rewarded |= next.rewarded;
  if (next.done || live.turns >= section_.max_turns || !live.stopped) return finish(batch, live);
  // Without room for a token of the next turn the episode ends here.
  const int64_t room = options_.max_new_tokens - live.state->length() - 1;
  if (live.state->add_answer(next.messages, room)) return submit(batch, live);
  live.stopped = false;
  finish(batch, live);
}

void EpisodeDriver::submit(Batch& batch, Live& live) {
  const Ask& ask = batch.asks[live.ask];
  generate::Request request{ask.key, live.state->context(), 1, options_, ask.adapter};
  const int64_t length = live.state->length();
  request.options.max_new_tokens = options_.max_new_tokens - length;
  request.options.min_new_tokens = std::max<int64_t>(0, options_.min_new_tokens - length);
  request.first_sample = live.sample;
  request.position = length;
  request.rows = models::external_rows(live.state->context_images());
  batch.sampling[batch.source.submit(std::move(request))] = live.number;
}

void EpisodeDriver::sampled(Batch& batch, generate::Completion turn) {
  const auto found = batch.sampling.find(turn.request);
  if (found == batch.sampling.end()) return;
  Live& live = batch.open.at(found->second);
  batch.sampling.erase(found);
  const bool ended = !turn.tokens.empty() &&
                     std::find(ends_.begin(), ends_.end(), turn.tokens.back()) != ends_.end();
  env::Turn said = live.state->add_turn(turn, ended, section_.tool_call_format);
  ++live.turns;
  live.stopped = turn.stopped;
  counts_.unread_calls += static_cast<int64_t>(said.problems.size());
  if (live.alone) return finish(batch, live);
  pool_.step(live.number, std::move(said));
}

// A first turn that is being sampled is completed, as there is no episode without one.
void EpisodeDriver::end_overdue(Batch& batch) {
  const double now = steady_seconds(), most = *section_.episode_seconds;
  std::vector<int64_t> overdue;
  for (const auto& [number, live] : batch.open)
    if (!live.failed && now - live.began > most) overdue.push_back(number);
  for (const int64_t number : overdue) {
    Live& live = batch.open.at(number);
    const auto asked = std::find_if(batch.sampling.begin(), batch.sampling.end(),
                                    [&](const auto& request) { return request.second == number; });
    const bool speaks = asked != batch.sampling.end();
    if (speaks && (live.turns > 0 || drops_failures())) {
      batch.source.cancel(asked->first);
      batch.sampling.erase(asked);
    }
    const env::Failure late{env::Failure::Kind::kTimedOut,
                            str("an episode of ", live.turns,
                                " turns took longer than environment.episode_seconds, ", most)};
    if (!speaks || live.turns > 0 || drops_failures()) {
      fail(batch, live, late);
      continue;
    }
    count(late);
    live.failed = live.alone = true;
    live.reward = live.before = 0;
  }
}

// The environment's reward is 0. An episode without a turn is its prompt's answer alone.
void EpisodeDriver::fail(Batch& batch, Live& live, const env::Failure& failure) {
  count(failure);
  live.failed = true;
  live.reward = 0;
  live.turn_rewards.clear();
  live.dropped = drops_failures();
  if (live.turns > 0 || live.dropped) return finish(batch, live);
  live.alone = true;
  live.state.emplace(format_, *batch.asks[live.ask].row, env::Observation());
  submit(batch, live);
}

void EpisodeDriver::finish(Batch& batch, Live& live) {
  pool_.close(live.number);
  if (live.failed)
    counted_zero_ |= !live.dropped;
  else
    gave_negative_ |= live.reward < 0;
  SampledEpisode& out = batch.ended[live.ask][static_cast<size_t>(live.sample)];
  out.ended = steady_seconds();
  out.dropped = live.dropped;
  out.failed = live.failed;
  out.rewarded = live.rewarded;
  out.episode.sample = live.sample;
  out.episode.reward = live.reward;
  out.episode.rewards = {{kEnvironmentReward, live.reward}};
  out.episode.stopped = live.stopped;
  out.episode.turns = live.turns;
  out.episode.turn_rewards = std::move(live.turn_rewards);
  out.episode.turn_rewards.resize(static_cast<size_t>(live.turns), 0);
  if (live.state) {
    out.prompt = live.state->prompt();
    out.prompt_images = live.state->prompt_images();
    out.completion = live.state->completion();
    out.episode.text = live.state->text();
  }
  const size_t ask = live.ask;
  batch.open.erase(live.number);  // `live` is gone
  if (--batch.unfinished[ask] == 0) batch.done(ask, std::move(batch.ended[ask]));
}

}  // namespace temper::rl
